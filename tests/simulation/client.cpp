// See client.h.
#include "client.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "violation.h"

namespace syncd::simulation {
namespace {

using client::Completion;
using client::Timeout;

constexpr Micros kThinkUs = 2'000;
constexpr Micros kRetryUs = 200'000;
// In the order of Client::Phase.
constexpr const char* kPhases[] = {"join",      "begin", "renew",   "compute",
                                   "targets",   "push",  "collect", "consumed",
                                   "restarted", "view",  "leave",   "done"};

// After these the same call is made again, some time later.
bool is_passing(Status status) {
  switch (status) {
    case Status::kTimeout:
    case Status::kUnreachable:
    case Status::kStore:
    case Status::kRankTaken:
    case Status::kCancelled:
      return true;
    default:
      return false;
  }
}

}  // namespace

Client::Client(Agenda& agenda, test::Random& random, Network& network, ClientWatcher& watcher,
               std::size_t host, int workers, const TrainerPlan& plan)
    : agenda_(agenda),
      random_(random),
      network_(network),
      watcher_(watcher),
      host_(host),
      plan_(plan),
      trainers_(static_cast<std::size_t>(workers)) {
  for (std::size_t i = 0; i < trainers_.size(); ++i) {
    trainers_[i].name = "w" + std::to_string(host) + "." + std::to_string(i);
  }
}

void Client::start() {
  born_ = agenda_.now();
  alive_ = std::make_shared<bool>(true);
  client::SessionOptions options;
  options.link.endpoints.clear();
  for (std::size_t i = 0; i < plan_.daemons; ++i) {
    options.link.endpoints.push_back("simulated" + std::to_string(i));
  }
  options.link.several_daemons = plan_.daemons > 1;
  options.link.client_name = "simulation";
  options.link.seed = random_.next();
  options.reconnect_timeout_us = random_.one_in(3) ? 2'000'000 : 60'000'000;
  number_ = 0;
  armed_ = client::kNever;
  frozen_until_ = 0;
  session_ = std::make_unique<client::Session>(options, now());
  for (std::size_t i = 0; i < trainers_.size(); ++i) {
    Trainer& trainer = trainers_[i];
    if (trainer.phase == Phase::kDone) continue;
    trainer.op = 0;
    trainer.aside = 0;
    start_life_over(trainer);
    act_later(i, static_cast<Micros>(random_.below(kThinkUs)));
  }
  pump();
}

void Client::kill(bool silent) {
  for (Trainer& trainer : trainers_) trains(trainer, false);
  if (alive_) *alive_ = false;
  if (connection_ != 0) network_.close(connection_, true, silent);
  connection_ = 0;
  connected_ = false;
  inputs_.clear();
  pending_.clear();
  session_.reset();
}

bool Client::finished() const {
  return std::all_of(trainers_.begin(), trainers_.end(),
                     [](const Trainer& trainer) { return trainer.phase == Phase::kDone; });
}

std::size_t Client::unfinished() const {
  return static_cast<std::size_t>(
      std::count_if(trainers_.begin(), trainers_.end(),
                    [](const Trainer& trainer) { return trainer.phase != Phase::kDone; }));
}

bool Client::waits() const {
  return std::ranges::any_of(trainers_, [](const Trainer& trainer) {
    return trainer.phase == Phase::kBegin && trainer.op != 0;
  });
}

bool Client::waits_to_start() const {
  return std::all_of(trainers_.begin(), trainers_.end(), [](const Trainer& trainer) {
    return trainer.phase == Phase::kDone || trainer.phase == Phase::kBegin;
  });
}

std::string Client::describe() const {
  std::string text = "host " + std::to_string(host_) + (running() ? "" : " (not running)");
  for (const Trainer& trainer : trainers_) {
    text += ", " + trainer.name + " rank " + std::to_string(trainer.rank) + " in " +
            kPhases[static_cast<int>(trainer.phase)] + " of " + std::to_string(trainer.iteration);
  }
  return text;
}

// ---- The transport

void Client::later(Micros span, std::function<void()> what) {
  agenda_.in(span, [alive = alive_, what = std::move(what)] {
    if (*alive) what();
  });
}

// In its order, also where the process stands still for a while.
void Client::input(std::function<void()> what) {
  inputs_.push_back(std::move(what));
  if (agenda_.now() >= frozen_until_) return handle_inputs();
  if (inputs_.size() == 1) {
    agenda_.at(frozen_until_, [this, alive = alive_] {
      if (*alive) handle_inputs();
    });
  }
}

void Client::handle_inputs() {
  if (agenda_.now() < frozen_until_) {
    agenda_.at(frozen_until_, [this, alive = alive_] {
      if (*alive) handle_inputs();
    });
    return;
  }
  const auto alive = alive_;
  for (const auto& what : std::exchange(inputs_, {})) {
    if (*alive) what();
  }
}

void Client::on_open(ConnectionKey connection) {
  if (connection != connection_) return;
  input([this, connection] {
    if (connection != connection_) return;
    connected_ = true;
    session_->on_connected(number_, now());
    pump();
  });
}

void Client::on_bytes(ConnectionKey connection, std::span<const std::uint8_t> bytes) {
  if (connection != connection_) return;
  input([this, connection, copy = std::vector<std::uint8_t>(bytes.begin(), bytes.end())] {
    if (connection != connection_) return;
    session_->on_bytes(number_, copy, now());
    pump();
  });
}

void Client::on_end(ConnectionKey connection, const std::string& reason) {
  if (connection != connection_) return;
  input([this, connection, reason] {
    if (connection != connection_) return;
    network_.close(connection_, true);
    connection_ = 0;
    connected_ = false;
    session_->on_disconnected(number_, reason, now());
    pump();
  });
}

void Client::follow_wish() {
  const client::LinkWish wish = session_->wish();
  if (wish.number == number_) return;
  if (connection_ != 0) network_.close(connection_, true);
  connection_ = 0;
  connected_ = false;
  number_ = wish.number;
  if (wish.up) connection_ = network_.connect(*this, host_, wish.endpoint);
}

void Client::send_output() {
  OutBuffer& output = session_->output();
  if (!connected_ || output.empty()) return;
  network_.send(connection_, true, {output.bytes().begin(), output.bytes().end()});
  output.shrink(0);
}

void Client::pump() {
  if (pumping_) return;
  pumping_ = true;
  follow_wish();
  send_output();
  while (!session_->completions().empty()) {
    for (const Completion& completion : std::exchange(session_->completions(), {})) {
      const auto found = pending_.find(completion.op);
      require(found != pending_.end(), "an operation completes twice, or was never asked for");
      const std::size_t index = found->second;
      pending_.erase(found);
      ended(index, completion);
    }
  }
  session_->events().clear();
  follow_wish();
  send_output();
  pumping_ = false;
  arm_timer();
}

void Client::arm_timer() {
  const client::TimeUs next = session_->next_deadline();
  if (next == armed_) return;
  armed_ = next;
  const std::uint64_t timer = ++timer_;
  if (next == client::kNever) return;
  later(std::max<Micros>(0, next - now()), [this, timer] {
    input([this, timer] {
      if (timer != timer_) return;
      armed_ = client::kNever;
      session_->on_time(now());
      pump();
    });
  });
}

// ---- The trainers

void Client::start_life_over(Trainer& trainer) {
  trains(trainer, false);
  trainer.phase = Phase::kJoin;
  trainer.iteration = -1;
  trainer.worker = client::kNoWorker;
  trainer.signals = std::make_shared<client::WorkerSignals>();
}

Timeout Client::patience() {
  if (calm_ || random_.one_in(2)) return {};
  const std::uint64_t most = random_.one_in(3) ? 1'000 : 5'000'000;
  return Timeout::after(static_cast<Micros>(random_.below(most)), now());
}

void Client::act_later(std::size_t index, Micros span) {
  later(span, [this, index] { input([this, index] { act(index); }); });
}

void Client::act(std::size_t index) {
  Trainer& trainer = trainers_[index];
  if (trainer.op != 0 || trainer.phase == Phase::kDone) return;
  if (trainer.phase == Phase::kCompute) return compute(index);
  trainer.op = next_op_++;
  pending_[trainer.op] = index;
  call(trainer);
  // Now and then somebody asks why it waits.
  if (trainer.phase != Phase::kJoin && trainer.aside == 0 && random_.one_in(20)) {
    trainer.aside = next_op_++;
    pending_[trainer.aside] = index;
    session_->explain({trainer.aside, Timeout::after(3'000'000, now()), now()}, trainer.worker);
  }
  pump();
}

void Client::call(Trainer& trainer) {
  const client::Ask ask{trainer.op, patience(), now()};
  const client::WorkerId worker = trainer.worker;
  switch (trainer.phase) {
    case Phase::kJoin: {
      client::JoinRequest request;
      request.job = "job";
      request.name = trainer.name;
      request.host = "host" + std::to_string(host_);
      request.signals = trainer.signals;
      if (plan_.rounds) request.data.assign(trainer.name.begin(), trainer.name.end());
      return session_->join(ask, std::move(request));
    }
    case Phase::kBegin:
      return session_->begin(ask, worker);
    case Phase::kRenew:
      return session_->collect(ask, worker, trainer.iteration - 1);
    case Phase::kTargets:
      return session_->targets(ask, worker, trainer.iteration);
    case Phase::kPush:
      // What is pushed can be read by then.
      if (plan_.decentralized)
        watcher_.on_published(trainer.rank, trainer.iteration, trainer.targets);
      if (trainer.iteration % 2 != 0) trainer.signals->mark_computed(now());
      return session_->push(ask, worker, trainer.iteration, {0.5, 32, 1024});
    case Phase::kCollect:
      return session_->collect(ask, worker, trainer.iteration);
    case Phase::kConsumed:
      return session_->consumed(ask, worker, trainer.iteration);
    case Phase::kRestarted:
      return session_->restarted(ask, worker, trainer.iteration);
    case Phase::kView:
      return session_->view(ask, worker, 0);
    case Phase::kLeave:
      if (!plan_.rounds) return session_->leave(ask, worker);
      return session_->leave_as(ask, worker, wire::LeaveKind::kFinished, "");
    case Phase::kCompute:
    case Phase::kDone:
      break;
  }
  require(false, "a trainer calls nothing");
}

void Client::compute(std::size_t index) {
  Micros span = plan_.iteration_us / 2 +
                static_cast<Micros>(random_.below(static_cast<std::uint64_t>(plan_.iteration_us)));
  if (!calm_ && plan_.slow_one_in > 0 && random_.one_in(plan_.slow_one_in)) span *= 50;
  later(span, [this, index] {
    input([this, index] {
      Trainer& trainer = trainers_[index];
      if (trainer.phase != Phase::kCompute) return;
      const bool resync = std::atomic_ref(*trainer.signals->flag()).load() != 0;
      if (plan_.rounds) {
        trainer.phase = after_iteration(trainer);
        if (trainer.phase != Phase::kCompute) trains(trainer, false);
      } else if (resync) {
        watcher_.on_dropped(trainer.rank, trainer.iteration);
        trainer.phase = Phase::kRestarted;
      } else if (plan_.decentralized) {
        trainer.phase = plan_.compute_first ? Phase::kTargets : Phase::kCollect;
      } else {
        trainer.phase = Phase::kPush;
      }
      act(index);
    });
  });
}

void Client::trains(Trainer& trainer, bool in_round) {
  if (!plan_.rounds) return;
  watcher_.on_trains(trainer.name, in_round ? static_cast<std::uint64_t>(trainer.iteration) : 0);
}

// As the agent of torchrun: it ends its part in a round that is broken or has room, or if its own
// worker has crashed.
Client::Phase Client::after_iteration(Trainer& trainer) {
  if (++trainer.trained >= plan_.iterations) return Phase::kLeave;
  const client::RoundState round = trainer.signals->round();
  const bool anew = static_cast<std::int64_t>(round.number) != trainer.iteration ||
                    round.gone > 0 || round.room > 0;
  return anew || (!calm_ && random_.one_in(60)) ? Phase::kBegin : Phase::kCompute;
}

void Client::ended(std::size_t index, const Completion& completion) {
  Trainer& trainer = trainers_[index];
  if (completion.op == trainer.aside) {
    trainer.aside = 0;
    if (const auto* why = std::get_if<Explanation>(&completion.result)) {
      require(!why->text.empty(), "an explanation says nothing");
    }
    return;
  }
  require(completion.op == trainer.op, "a completion belongs to nobody");
  trainer.op = 0;
  watcher_.on_outcome(trainer.name, kPhases[static_cast<int>(trainer.phase)], completion.status);
  if (completion.status == Status::kOk) return succeeded(index, completion);
  if (completion.status == Status::kStopped) {
    trainer.phase = Phase::kDone;
    return;
  }
  if (trainer.phase == Phase::kLeave && completion.status == Status::kClosed) {
    // An earlier call, of which it has not heard, has let it leave.
    trainer.phase = Phase::kDone;
    return;
  }
  if (completion.status == Status::kWrongIteration && plan_.decentralized) {
    // It was given up and taken in again: the next begin says where it takes part.
    trainer.phase = Phase::kBegin;
    trainer.iteration = -1;
    act_later(index, static_cast<Micros>(random_.below(kThinkUs)));
    return;
  }
  if (completion.status == Status::kInvalid && trainer.phase == Phase::kView) {
    // It was lost meanwhile and taken in again, and its round is long over.
    trains(trainer, false);
    trainer.phase = Phase::kBegin;
  } else if (completion.status == Status::kFenced) {
    // Declared lost: it comes back as somebody new.
    if (trainer.worker != client::kNoWorker) session_->release(trainer.worker, now());
    start_life_over(trainer);
  } else {
    require(is_passing(completion.status),
            "a trainer's call fails: " + std::string(status_name(completion.status)) + ", " +
                completion.message + " (" + describe() + ")");
  }
  act_later(index, static_cast<Micros>(random_.below(kRetryUs)));
}

void Client::succeeded(std::size_t index, const Completion& completion) {
  Trainer& trainer = trainers_[index];
  switch (trainer.phase) {
    case Phase::kJoin: {
      const auto& joined = std::get<client::JoinResult>(completion.result);
      trainer.worker = joined.worker;
      trainer.rank = joined.rank;
      trainer.phase = Phase::kBegin;
      break;
    }
    case Phase::kBegin:
      after_begin(trainer, std::get<client::Step>(completion.result));
      break;
    case Phase::kRenew:
      watcher_.on_collected(trainer.rank, trainer.iteration - 1,
                            std::get<client::CollectResult>(completion.result).updates);
      trainer.phase = plan_.compute_first ? Phase::kCompute : Phase::kTargets;
      break;
    case Phase::kTargets:
      trainer.targets = std::get<client::TargetsResult>(completion.result).ranks;
      trainer.phase = Phase::kPush;
      break;
    case Phase::kPush: {
      const bool late = std::get<client::PushResult>(completion.result).late;
      if (!late) watcher_.on_acknowledged(trainer.rank, trainer.iteration);
      if (!plan_.decentralized) {
        trainer.phase = Phase::kBegin;
      } else {
        trainer.phase = plan_.compute_first ? Phase::kCollect : Phase::kCompute;
      }
      break;
    }
    case Phase::kCollect:
      watcher_.on_collected(trainer.rank, trainer.iteration,
                            std::get<client::CollectResult>(completion.result).updates);
      trainer.phase = plan_.acknowledges ? Phase::kConsumed : Phase::kBegin;
      break;
    case Phase::kConsumed:
      trainer.phase = Phase::kBegin;
      break;
    case Phase::kRestarted:
      trainer.phase = Phase::kCompute;
      break;
    case Phase::kView:
      watcher_.on_members(trainer.name, std::get<client::ViewResult>(completion.result));
      trainer.phase = Phase::kCompute;
      break;
    case Phase::kLeave:
      session_->release(trainer.worker, now());
      trainer.phase = Phase::kDone;
      return;
    case Phase::kCompute:
    case Phase::kDone:
      require(false, "a trainer that calls nothing hears of a call");
  }
  act_later(index, static_cast<Micros>(random_.below(kThinkUs)));
}

void Client::after_begin(Trainer& trainer, const client::Step& step) {
  if ((step.flags & wire::kStepStop) != 0) {
    // Under gather it may be the worker alone whose part is over.
    trainer.phase = plan_.rounds ? Phase::kLeave : Phase::kDone;
    return;
  }
  if (plan_.rounds) {
    require(static_cast<std::int64_t>(step.view) > trainer.iteration,
            trainer.name + " is granted a round twice");
    trainer.iteration = static_cast<std::int64_t>(step.view);
    trainer.phase = Phase::kView;
    return trains(trainer, true);
  }
  require(step.iteration > trainer.iteration, trainer.name + " is granted iteration " +
                                                  std::to_string(step.iteration) + " after " +
                                                  std::to_string(trainer.iteration));
  trainer.iteration = step.iteration;
  if (step.iteration >= plan_.iterations) {
    trainer.phase = Phase::kLeave;
  } else if (plan_.decentralized && (step.flags & wire::kStepSkip) != 0) {
    trainer.phase = Phase::kRenew;
  } else if (plan_.decentralized && !plan_.compute_first) {
    trainer.phase = Phase::kTargets;
  } else {
    trainer.phase = Phase::kCompute;
  }
}

}  // namespace syncd::simulation
