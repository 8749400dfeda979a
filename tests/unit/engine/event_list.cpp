// EventList: its jobs, what processes do, and what they make of answers.
#include "event_list.h"

#include <algorithm>
#include <stdexcept>

#include "daemon/core/policies/registry.h"
#include "daemon/core/topology/graph_spec.h"

namespace syncd::test {
namespace {

std::string text(std::int64_t number) {
  return std::to_string(number);
}

// A ring both ways, with a chord or two. It need not fit the number of workers that come.
std::shared_ptr<const topology::GraphFile> graph_file(std::uint32_t workers, Random& random) {
  std::vector<topology::Edge> edges;
  for (std::uint32_t i = 0; i < workers; ++i) {
    edges.push_back({i, (i + 1) % workers});
    edges.push_back({(i + 1) % workers, i});
  }
  for (std::int64_t chords = random.between(0, 2); chords > 0; --chords) {
    const auto from = static_cast<std::uint32_t>(random.below(workers));
    const auto to = static_cast<std::uint32_t>(random.below(workers));
    edges.push_back({from, to});
    edges.push_back({to, from});
  }
  auto file = std::make_shared<topology::GraphFile>();
  file->graph = std::make_shared<const topology::Graph>(workers, edges);
  return file;
}

std::string graph_name(Random& random) {
  std::vector<const char*> names{"complete",   "ring",        "ring_directed",
                                 "ring_based", "double_ring", "root_expander",
                                 "star",       "halton",      "clustered"};
  return random.pick(names);
}

std::string base_policy(Random& random) {
  switch (random.below(3)) {
    case 0:
      return "asp";
    case 1:
      return "ssp:" + text(random.between(0, 4));
    default: {
      const std::int64_t lower = random.between(0, 3);
      return "dssp:" + text(lower) + "-" + text(lower + random.between(0, 5));
    }
  }
}

std::string elastic_policy(Random& random) {
  std::string policy = "elastic_bsp:" + text(random.between(1, 9));
  std::vector<const char*> algorithms{"",
                                      ",full_grid_scan",
                                      ",grid_scan",
                                      ",zipline",
                                      ",zipline_opt",
                                      ",zipline_opt_bs",
                                      ",zipline_linked",
                                      ",zipline_gaps"};
  std::vector<const char*> predictors{"", ",ewma", ",median", ",last"};
  policy += random.pick(algorithms);
  policy += random.pick(predictors);
  return policy;
}

std::string specsync_options(Random& random) {
  std::string options;
  if (random.one_in(2)) options += ",scope=worker";
  if (random.one_in(2)) options += ",cap=span";
  if (random.one_in(2)) options += ",auto_off=off";
  if (random.one_in(2)) options += ",max_restarts=" + text(random.between(1, 3));
  return options;
}

constexpr std::uint64_t kServerKinds = 18;
constexpr std::uint64_t kKinds = 28;
// Kinds that came later have the lists from here on, so that the lists before stay as they were.
constexpr std::uint64_t kLaterLists = 2'000;
constexpr std::uint64_t kLaterServerKind = kKinds + 2;
constexpr std::uint64_t kLaterKinds = 3;

// Every kind of policy in turn; chance chooses the parameters.
std::string policy_text(std::uint64_t kind, Random& random) {
  const auto backup = [&] { return ",backup=" + text(random.between(1, 2)); };
  const auto max_ig = [&] {
    return random.one_in(3) ? std::string() : ",max_ig=" + text(random.between(1, 5));
  };
  const auto staleness = [&] { return ",staleness=" + text(random.between(0, 4)); };
  const auto skip = [&] {
    std::string options = ",skip=" + text(random.between(2, 8));
    if (random.one_in(2)) options += ",skip_trigger=" + text(random.between(1, 3));
    return options;
  };
  // Parts are added one after the other: operands of + may be taken in any order.
  std::string policy;
  switch (kind) {
    case 0:
      return "asp";
    case 1:
      return "bsp";
    case 2:
      return "bsp:" + text(random.between(2, 4));
    case 3:
      return "bsp:1" + backup();
    case 4:
      policy = "bsp:" + text(random.between(2, 4));
      return policy += backup();
    case 5:
    case 6:
      return "ssp:" + text(random.between(0, 4));
    case 7:
    case 8:
      policy = "dssp:" + text(random.between(0, 2));
      return policy += "-" + text(random.between(2, 8));
    case 9:
    case 10:
      return elastic_policy(random);
    case 11:
      policy = elastic_policy(random) + ",objective=rate";
      return random.one_in(2) ? policy += ",beta=" + text(random.between(1, 4)) : policy;
    case 12:
    case 13:
      policy = "specsync:adaptive" + specsync_options(random);
      return policy += "+" + base_policy(random);
    case 14:
    case 15:
      policy = "specsync:fixed," + text(random.between(1, 60));
      policy += random.one_in(2) ? ",0.1" : ",0.4";
      if (random.one_in(2)) policy += ",auto_off=on";
      if (random.one_in(2)) policy += ",max_restarts=" + text(random.between(1, 3));
      return policy += "+" + base_policy(random);
    case 16:
      policy = "naive_wait:" + text(random.between(0, 80)) + "+";
      return policy += base_policy(random);
    case 17:
      policy = "naive_wait:" + text(random.between(0, 80)) + "+";
      return policy += random.one_in(2) ? elastic_policy(random) : "bsp:2" + backup();
    case 18:
      policy = "hop:" + graph_name(random);
      return policy += max_ig();
    case 19:
      policy = "hop:" + graph_name(random);
      policy += max_ig();
      return policy += backup();
    case 20:
      policy = "hop:" + graph_name(random);
      policy += max_ig();
      return policy += staleness();
    case 21:
      policy = "hop:" + graph_name(random);
      policy += backup();
      return policy += staleness();
    case 22:
      policy = "hop:" + graph_name(random);
      policy += max_ig();
      policy += backup();
      return policy += skip();
    case 23:
      policy = "hop:" + graph_name(random);
      policy += max_ig();
      policy += staleness();
      return policy += skip();
    case 24:
      policy = "hop:" + graph_name(random);
      policy += backup();
      return policy += ",backup." + text(random.between(0, 3)) + "=0";
    case 25:
      policy = "notify_ack:" + graph_name(random);
      return random.one_in(2) ? policy += ",every=" + text(random.between(2, 4)) : policy;
    case 26:
      return "notify_ack:" + graph_name(random);
    case kKinds:
      return "barrier:" + graph_name(random);
    case kKinds + 1:
      return "async:" + graph_name(random);
    case kLaterServerKind:
      policy = "specsync:progress";
      if (random.one_in(2)) policy += ",max_restarts=" + text(random.between(1, 3));
      return policy += "+" + base_policy(random);
    default:
      if (random.one_in(4)) return "notify_ack:file:graph";
      return "hop:file:graph" + max_ig();
  }
}

constexpr std::string_view kPolicies[] = {"asp",         "bsp",        "ssp",      "dssp",
                                          "elastic_bsp", "naive_wait", "specsync", "hop",
                                          "notify_ack",  "barrier",    "async"};

}  // namespace

// ---- jobs

EventList::JobToRun EventList::choose_job(std::uint64_t kind, std::string name) {
  const bool peers = kind >= kServerKinds && kind != kLaterServerKind;
  for (int tries = 0; tries < 1000; ++tries) {
    JobToRun job;
    job.peers = peers;
    job.spec.name = name;
    job.spec.policy = policy_text(kind, random_);
    if (peers && random_.one_in(2)) job.spec.policy += ",force=1";
    job.spec.expected_workers =
        static_cast<std::uint32_t>(peers ? random_.between(2, 9) : random_.between(1, 6));
    if (random_.one_in(2)) {
      job.spec.min_workers =
          static_cast<std::uint32_t>(random_.between(1, job.spec.expected_workers));
    }
    if (job.spec.policy.find(":file:") != std::string::npos) {
      job.spec.graph_file = graph_file(job.spec.expected_workers, random_);
    }
    job.spec.start_timeout_us = 1'000 * random_.between(100, 3'000);
    job.spec.worker_grace_us = random_.one_in(6) ? 0 : 1'000 * random_.between(50, 3'000);
    job.spec.warn_after_us = random_.one_in(3)   ? 0
                             : random_.one_in(2) ? kAutoSpan
                                                 : 1'000 * random_.between(200, 1'500);
    job.spec.evict_after_us = random_.one_in(3)   ? 0
                              : random_.one_in(2) ? kAutoSpan
                                                  : 1'000 * random_.between(1'500, 6'000);
    job.push_follows_compute =
        traits_or_none(job.spec.policy).peer_loop.push_follows_data || random_.one_in(3);
    if (!validate(job.spec).empty()) continue;
    const std::string_view text = job.spec.policy;
    for (const std::string_view policy : kPolicies) {
      if (policy == text.substr(0, text.find_first_of(":+,"))) count("policy", policy);
    }
    return job;
  }
  throw std::runtime_error("no valid job was found of kind " + std::to_string(kind));
}

// By the configuration, by an operator, or by its first worker.
void EventList::make_job(const JobToRun& job) {
  switch (random_.below(options_.auto_create ? 3 : 2)) {
    case 0:
      return declare(job.spec);
    case 1:
      request(next_connection_++,
              wire::CreateJobRequest{job.spec.name, job.spec.policy, job.spec.expected_workers,
                                     job.spec.min_workers});
      return;
    default:
      return;
  }
}

EventList::EventList(std::uint64_t number, Counts& counts, std::string* text)
    : number_(number), random_(number + 1), counts_(counts), text_(text) {}

ListHashes EventList::run() {
  const std::uint64_t kind =
      number_ < kLaterLists ? number_ % kKinds : kKinds + number_ % kLaterKinds;
  jobs_.push_back(choose_job(kind, "train"));
  if (random_.one_in(6)) jobs_.push_back(choose_job(random_.below(kKinds), "tune"));
  const JobSpec& first = jobs_[0].spec;
  options_.defaults = first;
  options_.defaults.graph_file = nullptr;
  options_.durable = !random_.one_in(4);
  options_.auto_create = !random_.one_in(8);
  options_.snapshot_every_records =
      random_.one_in(3) ? 100'000 : static_cast<std::uint64_t>(random_.between(2, 40));
  if (random_.one_in(6)) options_.workers_per_job_max = first.expected_workers + 1;
  if (random_.one_in(6)) options_.workers_max = first.expected_workers + 2;
  if (random_.one_in(4)) options_.graph_edges_max = 20;
  timers_max_ = random_.one_in(2) ? SIZE_MAX : random_.one_in(2) ? 1 : 2;
  silence_ = random_.one_in(2) ? 4'000'000 : random_.one_in(2) ? 15'000'000 : 200'000'000;
  calm_ = static_cast<std::uint64_t>(random_.one_in(4) ? 200 : random_.between(5, 40));
  switches_ = random_.one_in(3);
  slow_ = random_.one_in(5) ? 60 : 1;
  worlds_ = random_.one_in(2);
  count_wanted_ = static_cast<std::uint64_t>(random_.one_in(12) ? random_.between(500, 800)
                                                                : random_.between(100, 500));

  make_engine();
  for (const JobToRun& job : jobs_) make_job(job);
  for (std::size_t job = 0; job < jobs_.size(); ++job) {
    for (std::uint32_t i = 0; i < jobs_[job].spec.expected_workers; ++i) add_process(job);
  }
  while (count_ < count_wanted_) {
    const std::uint64_t pause = random_.below(300);
    if (pause == 0) {
      advance(random_.between(0, silence_));
    } else if (pause < 20 && engine_->next_deadline() < now_ + 2'000'000) {
      // Just before it, in time, or just after; a time that goes back counts as the latest seen.
      advance(std::max<Micros>(0, engine_->next_deadline() - now_) + random_.between(-1, 1));
    } else {
      advance(random_.one_in(4) ? 0 : random_.between(0, 15'000) * slow_);
    }
    if (random_.one_in(5)) deliver_plan();
    if (random_.one_in(calm_)) disorder();
    // Every process is busy or waits for an answer.
    if (!act_any()) advance(random_.between(5'000, 60'000) * slow_);
    if (store_down_ > 0 && --store_down_ == 0) step(StoreState{true, {}});
    if (shut_down_ && random_.one_in(8)) restart(0);
  }
  add_state();

  ListHashes hashes;
  for (const JobToRun& job : jobs_) {
    hashes.policies += (hashes.policies.empty() ? "" : " ") + job.spec.policy;
  }
  hashes.seed = number_ + 1;
  hashes.count = count_;
  hashes.events = form_.events();
  hashes.effects = form_.effects();
  return hashes;
}

// ---- processes

void EventList::add_process(std::size_t job) {
  auto process = std::make_unique<Process>();
  process->job = job;
  process->name = "w" + std::to_string(next_name_++);
  process->host = "host" + std::to_string(random_.below(3));
  process->data.assign(random_.below(4), static_cast<std::uint8_t>(next_name_));
  process->names_policy = random_.one_in(2);
  process->notices = static_cast<std::uint32_t>(random_.below(4));
  if (random_.one_in(8)) {
    process->wanted_rank =
        static_cast<std::int32_t>(random_.below(jobs_[job].spec.expected_workers));
  }
  process->pace = 1'000 * random_.between(5, random_.one_in(4) ? 200 : 40) * slow_;
  process->last = random_.one_in(3) ? random_.between(3, 15) : 1'000'000;
  processes_.push_back(std::move(process));
}

RequestId EventList::request(ConnectionId connection, wire::Body body) {
  const RequestId id = next_request_++;
  std::shared_ptr<const topology::GraphFile> file;
  const std::string* policy = nullptr;
  if (const auto* join = std::get_if<wire::Join>(&body)) policy = engine_->policy_to_make(*join);
  if (const auto* create = std::get_if<wire::CreateJobRequest>(&body)) {
    policy = engine_->policy_to_make(*create);
  }
  if (policy != nullptr && !random_.one_in(16)) {
    for (const JobToRun& job : jobs_) {
      if (job.spec.policy == *policy) file = job.spec.graph_file;
    }
  }
  step(Request{{connection, id}, std::move(body), std::move(file)});
  return id;
}

void EventList::send(Process& p, Ask ask, wire::Body body) {
  p.ask = ask;
  p.pending = next_request_;
  request(p.connection, std::move(body));
}

void EventList::join(Process& p) {
  if (p.connection == 0) {
    const Process& other = any_process();
    p.connection =
        other.connection != 0 && random_.one_in(4) ? other.connection : next_connection_++;
  }
  p.last_connection = p.connection;
  const JobSpec& spec = jobs_[p.job].spec;
  wire::Join join;
  join.job = spec.name;
  if (p.names_policy) join.policy = spec.policy;
  join.name = p.name;
  join.host = p.host;
  join.rank = p.wanted_rank;
  if (worlds_ || p.job > 0) join.world_size = spec.expected_workers;
  if (random_.one_in(10)) p.data.assign(random_.below(6), static_cast<std::uint8_t>(count_));
  join.data = p.data;
  join.notices = p.notices;
  if (p.ref.incarnation != 0) {
    join.rank = static_cast<std::int32_t>(p.ref.rank);
    join.incarnation = p.ref.incarnation;
    join.epoch = p.ref.epoch;
    join.granted = p.granted;
    join.pushed = p.pushed;
    join.collected = p.collected;
    join.consumed = p.consumed;
    if (p.phase_until > now_) {
      join.phase = "checkpoint";
      join.phase_left_us = p.phase_until - now_;
    }
  }
  send(p, Ask::kJoin, std::move(join));
}

bool EventList::can_act(const Process& p) const {
  return !p.gone && p.pending == 0 && p.busy_until <= now_;
}

bool EventList::act_any() {
  const std::size_t first = random_.below(processes_.size());
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    Process& process = *processes_[(first + i) % processes_.size()];
    if (!can_act(process)) continue;
    act(process);
    return true;
  }
  return false;
}

void EventList::act(Process& p) {
  if (!p.joined) return join(p);
  const bool peers = jobs_[p.job].peers;
  if (p.at == At::kCompute) {
    p.at = !peers ? At::kPush : p.pushed == p.granted ? At::kCollect : At::kTargets;
  }
  switch (p.at) {
    case At::kBegin:
      if (p.next > p.last) return send(p, Ask::kLeave, wire::Leave{p.ref});
      return send(p, Ask::kBegin, wire::Begin{p.ref, p.next});
    case At::kTargets:
      return send(p, Ask::kTargets, wire::Targets{p.ref, p.granted});
    case At::kPush: {
      if (p.resync && !random_.one_in(4)) {
        p.resync = false;
        p.busy_until = now_ + p.pace;
        return send(p, Ask::kOther, wire::Restarted{p.ref, p.granted});
      }
      wire::Push push{p.ref, p.granted, {}, 0, 0};
      if (!random_.one_in(3)) push.loss = 100.0 / static_cast<double>(1 + count_);
      if (random_.one_in(2)) push.samples = random_.below(1000);
      if (random_.one_in(2)) push.bytes = random_.below(1 << 20);
      return send(p, Ask::kPush, push);
    }
    case At::kCollect:
      return send(p, Ask::kCollect,
                  wire::Collect{p.ref, p.pushed == p.granted ? p.granted : p.granted - 1});
    case At::kConsumed:
      return send(p, Ask::kConsumed, wire::Consumed{p.ref, p.granted});
    case At::kCompute:
      return;
  }
}

// ---- answers

void EventList::answer(Process& p, const wire::Body& body) {
  if (const auto* error = std::get_if<wire::Error>(&body)) return on_error(p, *error);
  p.errors = 0;
  const bool sends_late = jobs_[p.job].push_follows_compute;
  if (const auto* joined = std::get_if<wire::Joined>(&body)) {
    on_joined(p, *joined);
  } else if (const auto* granted = std::get_if<wire::Granted>(&body)) {
    on_granted(p, *granted);
  } else if (std::holds_alternative<wire::TargetsReply>(body)) {
    p.at = At::kPush;
  } else if (const auto* pushed = std::get_if<wire::Pushed>(&body)) {
    p.pushed = pushed->iteration;
    p.resync = false;
    p.at = !jobs_[p.job].peers ? At::kBegin : sends_late ? At::kCollect : At::kCompute;
    if (p.at == At::kBegin) p.next = p.pushed + 1;
    if (p.at == At::kCompute) p.busy_until = now_ + random_.between(0, p.pace);
  } else if (const auto* collected = std::get_if<wire::CollectReply>(&body)) {
    p.collected = collected->iteration;
    p.at = collected->iteration == p.granted ? At::kConsumed
           : sends_late                      ? At::kCompute
                                             : At::kTargets;
  } else if (p.ask == Ask::kConsumed) {
    p.consumed = p.granted;
    p.next = p.granted + 1;
    p.at = At::kBegin;
  } else if (p.ask == Ask::kLeave) {
    p.joined = false;
    p.gone = true;
  }
}

void EventList::on_joined(Process& p, const wire::Joined& joined) {
  p.joined = true;
  p.last_ref = p.ref.incarnation != 0 ? p.ref : joined.worker;
  p.ref = joined.worker;
  if (joined.resumed) {
    if (p.at == At::kBegin) p.next = joined.iteration;
    return;
  }
  p.at = At::kBegin;
  p.next = joined.iteration;
  p.granted = p.pushed = p.collected = p.consumed = joined.iteration - 1;
}

void EventList::on_granted(Process& p, const wire::Granted& granted) {
  if ((granted.flags & wire::kStepStop) != 0) {
    p.gone = true;
    return;
  }
  const bool peers = jobs_[p.job].peers;
  const bool jumps = granted.iteration != p.next;
  p.granted = granted.iteration;
  p.resync = false;
  p.at = !peers || jobs_[p.job].push_follows_compute ? At::kCompute : At::kTargets;
  if (peers && jumps) p.at = At::kCollect;
  if (p.at == At::kCompute) {
    p.busy_until = now_ + p.pace + random_.between(0, p.pace / (random_.one_in(2) ? 10 : 1));
  }
}

void EventList::on_error(Process& p, const wire::Error& error) {
  if (p.at == At::kCompute) p.at = At::kBegin;
  switch (error.status) {
    case Status::kStore:
    case Status::kCancelled:
    case Status::kShutdown:
      p.busy_until = now_ + random_.between(0, 50'000);
      return;  // asked again
    case Status::kStopped:
    case Status::kInvalid:
    case Status::kLimit:
      p.gone = true;
      return;
    case Status::kPolicyMismatch:
      p.names_policy = false;
      break;
    case Status::kRankTaken:
      p.name = "w" + std::to_string(next_name_++);
      p.wanted_rank = -1;
      p.ref = {};
      break;
    case Status::kFenced:
    case Status::kUnknownWorker:
      if (p.ask == Ask::kJoin) p.ref = {};
      break;
    default:
      break;
  }
  // Joins again: most of what can be wrong is put right by that.
  p.joined = false;
  p.busy_until = now_ + random_.between(0, 100'000);
  if (++p.errors > 2) p.ref = {};
  if (p.errors > 4) p.gone = true;
}

void EventList::notify(ConnectionId connection, const wire::Body& body) {
  for (auto& p : processes_) {
    if (p->connection != connection) continue;
    if (const auto* fenced = std::get_if<wire::FencedNotice>(&body)) {
      if (fenced->worker == p->ref) p->joined = false, p->pending = 0;
    } else if (const auto* stop = std::get_if<wire::StopNotice>(&body)) {
      if (stop->worker == p->ref) p->gone = true, p->pending = 0;
    } else if (const auto* resync = std::get_if<wire::ResyncNotice>(&body)) {
      if (resync->worker == p->ref && resync->iteration == p->granted) {
        p->resync = true;
        p->busy_until = now_;
      }
    }
  }
}

void EventList::forget_connection(Process& p) {
  p.connection = 0;
  p.joined = false;
  p.pending = 0;
}

}  // namespace syncd::test
