// World: everything that may happen, in random order, and how a run is brought to its end. One
// thread.
#include <algorithm>
#include <iterator>

#include "tests/support/effects_text.h"
#include "world.h"

namespace syncd::test {
namespace {

constexpr std::size_t kAliveMax = 8;
constexpr int kRoundsMax = 20'000;

}  // namespace

void World::run() {
  start_engine();
  std::string error;
  require(engine_->declare_job(spec_, now_, effects_, error), error);
  require(twin_->declare_job(spec_, now_, twin_effects_, error), error);
  model_.observe_declared(now_, effects_);
  absorb();
  commit(stored_.size());
  for (int i = 0; i < options_.processes; ++i) add_process();
  for (int i = 0; i < options_.steps && model_.state() != JobState::kStopped; ++i) {
    live();
    ++counts_["step"];
  }
  finish();
}

// ---- disorder

void World::live() {
  Process& process = any_process();
  if (random_.one_in(faults_one_in_)) return disturb(process);
  if (!model_.store_writable() && random_.one_in(20)) return step(StoreState{true, {}});
  switch (random_.below(8)) {
    case 0:
      return commit(committed_ + random_.below(stored_.size() - committed_ + 1));
    case 1:
      return random_.one_in(3) ? happen_late() : advance(random_.between(0, 30'000));
    case 2:
      deliver(process.connection);
      return;
    default:
      if (random_.one_in(3)) commit(stored_.size());
      while (deliver(process.connection)) {
      }
      act(process);
  }
}

void World::disturb(Process& process) {
  switch (random_.below(23)) {
    case 0:
    case 1:
      return cut(process.connection);
    case 2:
    case 3:
    case 4:
      return repeat_request(process);
    case 5:
    case 6:
      if (!process.joined) return;
      request(process.connection, wire::CancelBegin{process.ref, process.begin_asked});
      if (random_.one_in(2)) process.begin = 0;  // the answer, if it came just before, is dropped
      return;
    case 7:
    case 8:
      if (process.joined) request(process.connection, wire::Explain{process.ref});
      return;
    case 9:
      return send_stale(process);
    case 10:
      if (random_.one_in(4)) process.leave_stands = process.joined && !process.push_stands;
      return;
    case 11:
      return replace(process);
    case 12:
      if (random_.one_in(200)) {
        request(next_connection_++, wire::StopJobRequest{"train", "enough"});
      }
      return;
    case 13:
      return step(StoreState{false, "full"});
    case 14:
      if (random_.one_in(2)) crash();
      return;
    case 15:
      return advance(random_.between(0, 6'000'000));
    case 16:
      return check_replay();
    case 17:
    case 18:
    case 19:
      return announce_phase(process);
    case 20:
      return manage(process);
    case 21:
      if (!process.joined) return;
      request(process.connection,
              wire::MembersRequest{process.ref, static_cast<std::uint32_t>(random_.below(3))});
      return;
    default:
      return add_process();
  }
}

// An operator sends a worker away, or says that it is in a long phase.
void World::manage(const Process& process) {
  if (!random_.one_in(4)) return;
  constexpr wire::WorkerAction kActions[] = {wire::WorkerAction::kDrain, wire::WorkerAction::kKick,
                                             wire::WorkerAction::kLease};
  wire::ManageWorkerRequest request_body;
  request_body.job = "train";
  request_body.action = kActions[random_.below(3)];
  // Now and then of one that nobody knows, or that has gone.
  request_body.worker = std::to_string(random_.one_in(6) ? random_.below(12) : process.ref.rank);
  request_body.text = "checkpoint";
  request_body.lease_us = random_.between(1, 12'000'000);
  ++counts_["manage"];
  request(next_connection_++, request_body);
}

void World::announce_phase(Process& process) {
  if (!process.joined) return;
  wire::Phase phase{process.ref, "checkpoint", random_.between(1, 12'000'000)};
  if (random_.one_in(3)) {
    phase.name.clear();
    phase.lease_us = 0;
  }
  process.phase_until = phase.name.empty() ? 0 : now_ + phase.lease_us;
  ++counts_["phase"];
  request(process.connection, phase);
  // Long enough for whoever is late to be called so.
  if (random_.one_in(2)) advance(random_.between(0, 15'000'000));
}

// I8: what was asked, or answered, is asked once more.
void World::repeat_request(Process& process) {
  if (!process.joined) return;
  if (random_.one_in(2)) {
    if (process.granted >= 0) {
      request(process.connection, wire::Push{process.ref, process.granted, {}, 1, 0});
    }
    return;
  }
  if (process.begin_stands || process.open) {
    request(process.connection, wire::Begin{process.ref, process.begin_asked});
  }
}

// I6: of an earlier life, of another epoch, over a connection that is not the worker's.
void World::send_stale(Process& process) {
  if (process.ref.incarnation == 0) return;
  wire::WorkerRef ref = process.ref;
  ConnectionId connection = process.connection != 0 ? process.connection : next_connection_++;
  const ModelWorker* worker = model_.find(ref.rank);
  switch (random_.below(3)) {
    case 0:
      ref.epoch += static_cast<Epoch>(random_.between(1'000, 1'003));
      break;
    case 1:
      if (old_refs_.empty()) return;
      ref = random_.pick(old_refs_);
      worker = model_.find(ref.rank);
      if (worker != nullptr && worker->incarnation == ref.incarnation) return;
      break;
    default:
      connection = next_connection_++;
  }
  const Iteration k = worker != nullptr ? worker->clock : 0;
  const wire::Body bodies[] = {
      wire::Begin{ref, k},         wire::Push{ref, k, {}, 0, 0},
      wire::CancelBegin{ref, k},   wire::Leave{ref},
      wire::Explain{ref},          wire::Phase{ref, "checkpoint", 1'000'000},
      wire::MembersRequest{ref, 0}};
  refused_step(Request{{connection, next_request_++}, bodies[random_.below(std::size(bodies))]});
}

// The process dies, and another of its name takes over; or one of another name that asks for its
// rank.
void World::replace(Process& process) {
  if (!process.alive()) return;
  cut(process.connection);
  process.dead = true;
  auto next = std::make_unique<Process>();
  next->name = random_.one_in(4) ? "other" + std::to_string(next_name_++) : process.name;
  next->host = process.host;
  next->notices = process.notices;
  if (process.ref.incarnation != 0 && random_.one_in(2)) {
    next->wanted_rank = static_cast<std::int32_t>(process.ref.rank);
  }
  processes_.push_back(std::move(next));
}

void World::add_process() {
  // None of them is a member by what it last was: nobody waits for it.
  std::erase_if(processes_, [](const auto& p) { return !p->alive(); });
  if (processes_.size() >= kAliveMax) return;
  auto process = std::make_unique<Process>();
  process->name = "w" + std::to_string(next_name_++);
  process->host = "host" + std::to_string(next_name_ % 3);
  process->notices = static_cast<std::uint32_t>(random_.below(4));
  if (random_.one_in(4)) process->wanted_rank = static_cast<std::int32_t>(random_.below(6));
  processes_.push_back(std::move(process));
}

// The daemon reads what a cut connection still had, or notices that it is cut.
void World::happen_late() {
  if (!late_.empty() && random_.one_in(2)) {
    const auto [connection, body] = late_.front();
    late_.pop_front();
    request(connection, body);
  } else if (!cut_.empty()) {
    const ConnectionId connection = cut_.front();
    cut_.pop_front();
    // What it still had was read before its end.
    for (auto it = late_.begin(); it != late_.end();) {
      if (it->first != connection) {
        ++it;
        continue;
      }
      const wire::Body body = it->second;
      it = late_.erase(it);
      request(connection, body);
    }
    step(Disconnected{connection});
  }
}

// ---- the end: nothing goes wrong any more

// I2: everybody who keeps asking goes on. First some processes are frozen: the others come to rest,
// and whoever waits then waits for one of the frozen. At last nobody is.
void World::finish() {
  if (model_.state() != JobState::kStopped) {
    if (!model_.store_writable()) step(StoreState{true, {}});
    for (auto& process : processes_) process->frozen = random_.one_in(4);
    settle(1 << 30);
    check_replay();
    for (auto& process : processes_) process->frozen = false;
    settle(3);
    check_replay();
    if (random_.one_in(3)) stop_job();
  }
  while (!late_.empty() || !cut_.empty()) happen_late();
  commit(stored_.size());
  if (!options_.durable) return;
  // Every acknowledged push is in the history, as it was acknowledged.
  std::map<std::pair<std::int64_t, Incarnation>, std::pair<std::string, std::string>> names;
  std::set<std::tuple<std::string, std::string, Iteration, bool>> recorded;
  for (const Record& record : stored_) {
    if (record.kind == RecordKind::kWorkerJoined) {
      names[{record.rank, record.incarnation}] = {record.name, record.host};
    } else if (record.kind == RecordKind::kPush) {
      const auto& [name, host] = names.at({record.rank, record.incarnation});
      recorded.insert({name, host, record.iteration, record.late});
    }
  }
  for (const auto& push : acknowledged_) {
    require(recorded.contains(push), "an acknowledged push is lost: " + std::get<0>(push) +
                                         " iteration " + std::to_string(std::get<2>(push)));
  }
}

// In the middle of whatever everybody does: all of them hear of it, also with what they ask then.
void World::stop_job() {
  for (int i = 0; i < 10; ++i) live();
  if (!model_.store_writable()) step(StoreState{true, {}});
  request(next_connection_++, wire::StopJobRequest{"train", "enough"});
  check_replay();
  for (int i = 0; i < 40; ++i) live();
  check_replay();
}

// Lets everybody go on until each has made so many pushes, or nobody can go on.
void World::settle(int pushes) {
  for (auto& process : processes_) process->pushes = 0;
  for (int round = 0; !reached(pushes); ++round) {
    require(round < kRoundsMax, "the run does not come to its end");
    if (pushes > 1000 && round > 25) return;  // the frozen hold nobody up
    if (settle_round()) continue;
    // At rest: only time can change anything.
    explain_all();
    if (engine_->next_deadline() != kNever) {
      advance(std::max<Micros>(0, engine_->next_deadline() - now_));
      continue;
    }
    if (model_.state() == JobState::kWaiting && alive() < kAliveMax) {
      add_process();
      continue;
    }
    const bool frozen = std::any_of(processes_.begin(), processes_.end(),
                                    [](const auto& p) { return p->alive() && p->frozen; });
    require(frozen, "nobody can go on and nobody is to blame");
    return;
  }
}

std::size_t World::alive() const {
  return static_cast<std::size_t>(std::count_if(processes_.begin(), processes_.end(),
                                                [](const auto& p) { return p->alive(); }));
}

bool World::reached(int pushes) const {
  if (model_.state() == JobState::kStopped) return true;
  return std::all_of(processes_.begin(), processes_.end(),
                     [&](const auto& p) { return !p->alive() || p->pushes >= pushes; });
}

// Everybody does one thing; everything that is on its way arrives. False: nothing happened at all.
bool World::settle_round() {
  bool moved = false;
  advance(1000);
  commit(stored_.size());
  while (!late_.empty() || !cut_.empty()) {
    happen_late();
    moved = true;
  }
  std::vector<ConnectionId> open;
  for (const auto& [id, frames] : inbox_) open.push_back(id);
  for (const ConnectionId id : open) {
    while (deliver(id)) moved = true;
  }
  std::vector<Process*> order;
  for (auto& process : processes_) order.push_back(process.get());
  random_.shuffle(order);
  for (Process* process : order) {
    if (act(*process)) moved = true;
  }
  return moved;
}

// I7, of everybody who waits now; the model judges the answers.
void World::explain_all() {
  for (auto& process : processes_) {
    if (process->joined && process->alive()) {
      request(process->connection, wire::Explain{process->ref});
    }
  }
}

}  // namespace syncd::test
