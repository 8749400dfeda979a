// See golden_script.h. One thread.
#include "golden_script.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/exit_reason.h"
#include "golden_fold.h"
#include "tests/support/effects_text.h"

namespace syncd::test {
namespace {

constexpr ConnectionId kOperatorConnection = 1'000'000;

// A malformed script; caught by run_golden_script().
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ---- words: name [positional...] [key=value...]

std::vector<std::string> split_words(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false, any = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
      any = true;
    } else if (c == ' ' && !quoted) {
      if (any) words.push_back(std::exchange(word, {}));
      any = false;
    } else {
      word += c;
      any = true;
    }
  }
  if (quoted) throw Malformed("a quotation mark is missing");
  if (any) words.push_back(word);
  return words;
}

std::int64_t to_integer(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0') throw Malformed("'" + text + "' is no whole number");
  return value;
}

Micros to_micros(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double scale = unit == "s" ? 1e6 : unit == "ms" ? 1e3 : unit == "us" ? 1 : 0;
  if (end == text.c_str() || scale == 0) throw Malformed("'" + text + "' is no time such as 1.5s");
  return static_cast<Micros>(value * scale + 0.5);
}

class Words {
 public:
  explicit Words(std::vector<std::string> words) {
    for (std::string& word : words) {
      const std::size_t equals = word.find('=');
      if (equals == std::string::npos || equals == 0) {
        positional_.push_back(std::move(word));
      } else {
        keys_[word.substr(0, equals)] = word.substr(equals + 1);
      }
    }
  }

  std::string next(const char* what) {
    if (at_ >= positional_.size()) throw Malformed(std::string(what) + " is missing");
    return positional_[at_++];
  }
  bool take_word(const std::string& word) {
    if (at_ >= positional_.size() || positional_[at_] != word) return false;
    ++at_;
    return true;
  }
  bool take(const std::string& key, std::string& value) {
    const auto it = keys_.find(key);
    if (it == keys_.end()) return false;
    value = std::move(it->second);
    keys_.erase(it);
    return true;
  }
  template <class Integer>
  bool take_integer(const std::string& key, Integer& value) {
    std::string text;
    if (!take(key, text)) return false;
    value = static_cast<Integer>(to_integer(text));
    return true;
  }
  void take_micros(const std::string& key, Micros& value) {
    std::string text;
    if (take(key, text)) value = to_micros(text);
  }
  void take_lateness(const std::string& key, Micros& value) {
    std::string text;
    if (take(key, text)) value = text == "auto" ? kAutoSpan : to_micros(text);
  }
  bool take_switch(const std::string& key, bool value) {
    std::string text;
    if (!take(key, text)) return value;
    if (text != "on" && text != "off") throw Malformed(key + " must be on or off");
    return text == "on";
  }
  void finish() const {
    if (at_ < positional_.size()) throw Malformed("'" + positional_[at_] + "' is not expected");
    if (!keys_.empty()) throw Malformed("'" + keys_.begin()->first + "=' is not expected");
  }

 private:
  std::vector<std::string> positional_;
  std::size_t at_ = 0;
  std::map<std::string, std::string> keys_;
};

void take_settings(Words& words, JobSpec& spec) {
  words.take("policy", spec.policy);
  words.take_integer("expected", spec.expected_workers);
  words.take_integer("min", spec.min_workers);
  words.take_micros("start_timeout", spec.start_timeout_us);
  words.take_micros("grace", spec.worker_grace_us);
  words.take_lateness("warn", spec.warn_after_us);
  words.take_lateness("evict", spec.evict_after_us);
  words.take_lateness("exit_grace", spec.exit_grace_us);
  std::string on_failure;
  if (words.take("on_failure", on_failure)) spec.stops_on_failure = on_failure == "stop";
  words.take_lateness("hang", spec.hang_after_us);
  spec.inspect_on_hang = words.take_switch("inspect", spec.inspect_on_hang);
  words.take_integer("checkpoint_every", spec.checkpoint_every);
  words.take_micros("checkpoint_timeout", spec.checkpoint_timeout_us);
}

// A worker's process, as the script calls it.
struct Process {
  wire::Join join;  // as it was sent last
  wire::WorkerRef ref;
  ConnectionId connection = 0;
};

class Script {
 public:
  // Performs an event, or each of those that a line with lists stands for, and returns what the
  // engine said, each line indented.
  std::string perform(const std::string& line) {
    const Lines events = spread(line);
    if (events.empty()) throw Malformed("lists in braces must be equally long");
    std::vector<Lines> texts;
    for (const std::string& event : events) {
      perform_one(event, texts.empty());
      std::istringstream said(said_);
      texts.emplace_back();
      for (std::string one; std::getline(said, one);) texts.back().push_back(one);
    }
    std::optional<Lines> folded = texts.size() == 1 ? fold_replies(texts[0]) : fold_texts(texts);
    if (!folded) {
      folded.emplace();
      for (std::size_t i = 0; i < events.size(); ++i) {
        if (texts[i].empty()) continue;
        folded->push_back("  >" + events[i]);
        const Lines replies = fold_replies(texts[i]);
        folded->insert(folded->end(), replies.begin(), replies.end());
      }
    }
    std::string all;
    for (const std::string& one : *folded) all += one + "\n";
    return all;
  }

 private:
  // The time of a line is that of its first event.
  void perform_one(const std::string& event, bool first) {
    std::vector<std::string> list = split_words(event);
    if (list.empty()) throw Malformed("an event is missing after '>'");
    said_.clear();
    if (std::isdigit(list[0][0]) != 0 || list[0][0] == '+') {
      const bool relative = list[0][0] == '+';
      const Micros time = to_micros(list[0].substr(relative ? 1 : 0));
      list.erase(list.begin());
      if (first) pass_until(relative ? now_ + time : time);
    }
    if (list.empty()) throw Malformed("an event is missing after its time");
    const std::string verb = list[0];
    list.erase(list.begin());
    Words words(std::move(list));
    act(verb, words);
    words.finish();
  }

  void pass_until(Micros time) {
    if (time < now_) throw Malformed("time goes back");
    while (engine_ && engine_->next_deadline() <= time) {
      now_ = std::max(now_, engine_->next_deadline());
      engine_->tick(now_, effects_);
      const std::size_t before = said_.size();
      show("    ");
      if (said_.size() > before) said_.insert(before, "  @" + seconds_text(now_) + "\n");
    }
    now_ = time;
  }

  void act(const std::string& verb, Words& words) {
    if (verb == "engine") return make_engine(words);
    if (!engine_) engine_ = std::make_unique<Engine>(options_);
    if (verb == "declare") return declare(words);
    if (verb == "join" || verb == "rejoin") return join(words, verb == "rejoin");
    if (verb == "restart") return restart(words);
    if (verb == "store") return store(words);
    if (verb == "pass") return;
    if (verb == "state") return state(words);
    if (verb == "deadline") {
      const Micros at = engine_->next_deadline();
      said_ += "  " + (at == kNever ? std::string("none") : seconds_text(at)) + "\n";
      return;
    }
    if (verb == "cut" || verb == "close") {  // close: its own side has closed it
      Process& process = known(words.next("the worker"));
      return step(Disconnected{std::exchange(process.connection, 0), {}, verb == "close"});
    }
    if (verb == "plan") return plan(words);
    if (verb == "shutdown") return step(Shutdown{words.next("the reason")});
    if (operator_request(verb, words)) return;
    worker_request(verb, words);
  }

  void make_engine(Words& words) {
    if (engine_) throw Malformed("the engine is there already");
    options_.auto_create = words.take_switch("auto_create", true);
    options_.durable = words.take_switch("durable", true);
    words.take_integer("snapshot_every", options_.snapshot_every_records);
    words.take_micros("restart_grace", options_.restart_grace_us);
    take_settings(words, options_.defaults);
    engine_ = std::make_unique<Engine>(options_);
  }

  void declare(Words& words) {
    JobSpec spec = options_.defaults;
    spec.name = words.next("the job");
    take_settings(words, spec);
    std::string error;
    const bool ok = engine_->declare_job(spec, now_, effects_, error);
    if (!ok) said_ += "  refused: " + error + "\n";
    show("  ");
  }

  // ---- workers

  Process& known(const std::string& label) {
    const auto it = processes_.find(label);
    if (it == processes_.end()) throw Malformed("worker '" + label + "' has not joined");
    return it->second;
  }

  void join(Words& words, bool again) {
    const std::string label = words.next("the worker");
    Process& process = again ? known(label) : processes_[label];
    wire::Join& join = process.join;
    if (!again) {
      join = {};
      join.job = "train";
      join.name = label;
      join.host = "node-" + label;
    } else {
      join.rank = static_cast<std::int32_t>(process.ref.rank);
      join.incarnation = process.ref.incarnation;
      join.epoch = process.ref.epoch;
      join.granted = join.pushed = join.collected = join.consumed = kNoIteration;
      join.phase.clear();
      join.phase_left_us = 0;
    }
    words.take("job", join.job);
    words.take("policy", join.policy);
    words.take("name", join.name);
    words.take("host", join.host);
    words.take_integer("rank", join.rank);
    words.take_integer("world", join.world_size);
    words.take_integer("inc", join.incarnation);
    words.take_integer("epoch", join.epoch);
    words.take_integer("granted", join.granted);
    words.take_integer("pushed", join.pushed);
    words.take_integer("collected", join.collected);
    words.take_integer("consumed", join.consumed);
    std::string data;
    if (words.take("data", data)) join.data.assign(data.begin(), data.end());
    words.take_integer("notices", join.notices);
    join.views = words.take_switch("views", join.views);
    words.take("phase", join.phase);
    words.take_micros("left", join.phase_left_us);
    std::string launch;
    if (words.take("launch", launch)) {
      const std::size_t slash = launch.find('/');
      join.launch = launch.substr(0, slash);
      join.launch_number = slash == std::string::npos
                               ? 0
                               : static_cast<std::uint64_t>(to_integer(launch.substr(slash + 1)));
    }
    words.take_lateness("hang", join.hang_after_us);
    words.take_integer("resume", join.resume);
    words.take_micros("exit_grace", join.exit_grace_us);
    words.take_integer("heartbeat_timeout_ms", join.heartbeat_timeout_ms);
    if (words.take_integer("at", join.resume_at)) join.resume = wire::Resume::kContinue;
    std::string other;
    if (words.take("on", other)) {
      process.connection = known(other).connection;
    } else if (process.connection == 0 || !again) {
      process.connection = next_connection_++;
      labels_[process.connection] = label;
    }
    request(process.connection, label + " join", join);
  }

  void worker_request(const std::string& verb, Words& words) {
    const std::string label = words.next("the worker");
    Process& process = known(label);
    wire::WorkerRef ref = process.ref;
    ConnectionId connection = process.connection;
    words.take_integer("job", ref.job);
    words.take_integer("rank", ref.rank);
    words.take_integer("epoch", ref.epoch);
    words.take_integer("inc", ref.incarnation);
    std::string other;
    if (words.take("from", other)) connection = known(other).connection;
    if (verb == "leave") {
      wire::Leave leave{ref};
      std::string kind;
      if (words.take("kind", kind)) {
        while (leave.kind <= wire::LeaveKind::kPreempted && to_string(leave.kind) != kind) {
          leave.kind = static_cast<wire::LeaveKind>(static_cast<int>(leave.kind) + 1);
        }
      }
      words.take("reason", leave.reason);
      return request(connection, label + " leave", leave);
    }
    if (verb == "ask_checkpoint") {
      wire::AskCheckpoint ask{ref, {}, words.take_word("unless_broken")};
      words.take("reason", ask.reason);
      return request(connection, label + " ask_checkpoint", ask);
    }
    if (verb == "checkpointed") {
      wire::Checkpointed saved;
      saved.worker = ref;
      saved.number = static_cast<std::uint64_t>(to_integer(words.next("the checkpoint")));
      saved.shards = 1;
      words.take_integer("shard", saved.shard);
      words.take_integer("shards", saved.shards);
      if (!words.take("at", saved.location) && saved.shards > 0) saved.location = "/c/" + label;
      return request(connection, label + " checkpointed", saved);
    }
    if (verb == "view") {
      wire::ViewRequest view{ref, static_cast<std::uint64_t>(to_integer(words.next("the view"))),
                             0};
      words.take_integer("first", view.first_rank);
      return request(connection, label + " view", view);
    }
    if (verb == "members") {
      wire::MembersRequest members{ref, 0};
      words.take_integer("first", members.first_rank);
      return request(connection, label + " members", members);
    }
    if (verb == "phase") {
      wire::Phase phase{ref, words.next("the phase, or end"), 0};
      words.take_micros("lease", phase.lease_us);
      const std::string title = label + " phase(" + phase.name + ")";
      if (phase.name == "end") phase.name.clear();
      return request(connection, title, phase);
    }
    if (verb == "explain") return request(connection, label + " explain", wire::Explain{ref});
    if (verb == "inspected") {
      wire::Inspected inspected{ref, 0, {}};
      words.take_integer("number", inspected.number);
      std::string text;
      words.take("text", text);
      inspected.text.assign(text.begin(), text.end());
      return request(connection, label + " inspected", inspected);
    }
    static const std::set<std::string> kAboutIterations = {"begin",   "arrive",    "push",
                                                           "cancel",  "restarted", "targets",
                                                           "collect", "consumed",  "exchange"};
    if (!kAboutIterations.contains(verb)) throw Malformed("event '" + verb + "' is unknown");
    const std::string k_text = words.next("the iteration");
    const Iteration k = to_integer(k_text);
    const std::string title = label + " " + verb + "(" + k_text + ")";
    if (verb == "begin") return request(connection, title, wire::Begin{ref, k});
    if (verb == "arrive") {
      wire::Arrive arrive{ref, k, {}};
      std::string data;
      if (words.take("data", data)) arrive.data.assign(data.begin(), data.end());
      return request(connection, title, arrive);
    }
    if (verb == "cancel") return request(connection, title, wire::CancelBegin{ref, k});
    if (verb == "restarted") return request(connection, title, wire::Restarted{ref, k});
    if (verb == "targets") return request(connection, title, wire::Targets{ref, k});
    if (verb == "collect") return request(connection, title, wire::Collect{ref, k});
    if (verb == "consumed") return request(connection, title, wire::Consumed{ref, k});
    if (verb == "exchange") {
      wire::Exchanging exchanging{ref, k, 0};
      words.take_micros("for", exchanging.for_us);
      return request(connection, title, exchanging);
    }
    wire::Push push{ref, k, {}, 0, 0};
    std::string loss;
    if (words.take("loss", loss)) push.loss = std::strtod(loss.c_str(), nullptr);
    words.take_integer("samples", push.samples);
    words.take_integer("bytes", push.bytes);
    words.take_micros("computed", push.computed_us);
    request(connection, title, push);
  }

  bool operator_request(const std::string& verb, Words& words) {
    if (verb == "jobs") {
      request(kOperatorConnection, "jobs", wire::JobsRequest{});
    } else if (verb == "hello") {
      request(kOperatorConnection, "hello", wire::Hello{});
    } else if (verb == "workers") {
      wire::WorkersRequest workers{words.next("the job"), 0};
      words.take_integer("first", workers.first_rank);
      request(kOperatorConnection, "workers", workers);
    } else if (verb == "order_checkpoint") {
      wire::OrderCheckpoint order{words.next("the job"), {}};
      words.take("reason", order.reason);
      request(kOperatorConnection, "order_checkpoint", order);
    } else if (verb == "latest_checkpoint") {
      wire::LatestCheckpoint latest{words.next("the job"), 0};
      words.take_integer("first", latest.first_shard);
      words.take_integer("max", latest.shards_max);
      request(kOperatorConnection, "latest_checkpoint", latest);
    } else if (verb == "stop") {
      wire::StopJobRequest stop{words.next("the job"), {}};
      words.take("reason", stop.reason);
      request(kOperatorConnection, "stop", stop);
    } else if (verb == "set_policy") {
      wire::SetPolicyRequest set{words.next("the job"), {}};
      if (!words.take("policy", set.policy)) set.policy = words.next("the policy");
      request(kOperatorConnection, "set_policy", set);
    } else if (verb == "drain" || verb == "kick" || verb == "lease") {
      wire::ManageWorkerRequest manage;
      manage.job = words.next("the job");
      manage.worker = words.next("the worker");
      manage.action = verb == "drain"  ? wire::WorkerAction::kDrain
                      : verb == "kick" ? wire::WorkerAction::kKick
                                       : wire::WorkerAction::kLease;
      words.take("reason", manage.text);
      words.take("phase", manage.text);
      words.take_micros("lease", manage.lease_us);
      request(kOperatorConnection, verb + " " + manage.worker, manage);
    } else if (verb == "inspect") {
      wire::InspectRequest inspect;
      inspect.job = words.next("the job");
      inspect.worker = words.next("the worker");
      inspect.stored = words.take_word("stored");
      request(kOperatorConnection, "inspect " + inspect.worker, inspect);
    } else if (verb == "exclude") {
      wire::ExcludeRequest exclude;
      exclude.job = words.next("the job");
      exclude.host = words.next("the host");
      exclude.undo = words.take_word("undo");
      exclude.force = words.take_word("force");
      words.take("reason", exclude.reason);
      request(kOperatorConnection, "exclude " + exclude.host, exclude);
    } else if (verb == "create") {
      wire::CreateJobRequest create;
      create.name = words.next("the job");
      words.take("policy", create.policy);
      words.take_integer("expected", create.expected_workers);
      words.take_integer("min", create.min_workers);
      request(kOperatorConnection, "create", create);
    } else {
      return false;
    }
    return true;
  }

  void request(ConnectionId connection, const std::string& title, wire::Body body) {
    const Caller caller{connection, next_request_++};
    titles_[{connection, caller.request}] = title;
    step(Request{caller, std::move(body)});
  }

  void step(Event event) {
    engine_->step(std::move(event), now_, effects_);
    show("  ");
  }

  // ---- the daemon

  void store(Words& words) {
    if (words.take_word("up")) return step(StoreState{true, {}});
    if (!words.take_word("down")) throw Malformed("store is up or down");
    step(StoreState{false, words.next("the reason")});
  }

  // The oldest plan that nobody has worked on yet, or the one with this id.
  void plan(Words& words) {
    std::uint64_t id = plans_.empty() ? 0 : plans_.begin()->first;
    const bool again = words.take_integer("again", id);
    auto& plans = again ? done_plans_ : plans_;
    const auto it = plans.find(id);
    if (it == plans.end()) throw Malformed("there is no such plan");
    const Plan plan = it->second;
    plans_.erase(id);
    done_plans_[id] = plan;
    step(PlanReady{plan.job, plan.id, plan.work->run()});
  }

  void state(Words& words) {
    const std::string name = words.next("the job");
    JobSnapshot snapshot;
    if (!engine_->snapshot(engine_->find_job(name), snapshot)) {
      throw Malformed("there is no job '" + name + "'");
    }
    said_ += "  " + to_text(snapshot, now_) + "\n";
    for (std::size_t at = 2; (at = said_.find("\n  ", at)) != std::string::npos; at += 3) {
      said_.insert(at + 1, "  ");
    }
  }

  void restart(Words& words) {
    engine_ = std::make_unique<Engine>(options_);
    for (auto& [label, process] : processes_) process.connection = 0;
    plans_.clear();
    if (words.take_word("empty")) {
      stored_.clear();
      snapshots_.clear();
      return;
    }
    const bool use_snapshot = words.take_word("snapshot");
    std::size_t keep = SIZE_MAX;
    words.take_integer("keep", keep);
    for (auto& [job, records] : stored_) restore(job, records, use_snapshot, keep);
    engine_->finish_restore(now_);
  }

  void restore(JobId job, std::vector<Record>& records, bool use_snapshot, std::size_t keep) {
    records.resize(std::min(keep, records.size()));
    const auto it = snapshots_.find(job);
    const bool has = it != snapshots_.end() && it->second.sequence <= records.size();
    if (use_snapshot && !has) throw Malformed("no snapshot was taken");
    const std::size_t skip = use_snapshot ? it->second.sequence : 0;
    std::string error;
    const std::span<const Record> rest(records.begin() + static_cast<std::ptrdiff_t>(skip),
                                       records.end());
    if (!engine_->restore(use_snapshot ? &it->second : nullptr, rest, error)) {
      said_ += "  not restored: " + error + "\n";
      return;
    }
    said_ += "  restored from " +
             (use_snapshot ? "the snapshot at " + std::to_string(skip) + " and " : std::string()) +
             std::to_string(rest.size()) + " records\n";
  }

  // ---- what the engine said

  void show(const std::string& indent) {
    for (const Record& record : effects_.records) stored_[record.job].push_back(record);
    for (const JobSnapshot& snapshot : effects_.snapshots) {
      snapshots_[snapshot.created.job] = snapshot;
    }
    for (const Plan& plan : effects_.plans) plans_[plan.id] = plan;
    for (const Reply& reply : effects_.replies) learn(reply);
    said_ += to_text(effects_, now_, indent, [this](const Caller& caller) {
      const auto title = titles_.find({caller.connection, caller.request});
      return title != titles_.end() ? title->second : labels_[caller.connection];
    });
  }

  void learn(const Reply& reply) {
    const auto* joined = std::get_if<wire::Joined>(&reply.body);
    if (joined == nullptr) return;
    const std::string& title = titles_.at({reply.to.connection, reply.to.request});
    known(title.substr(0, title.find(' '))).ref = joined->worker;
  }

  EngineOptions options_ = [] {
    EngineOptions options;
    options.defaults.expected_workers = 1;
    return options;
  }();
  std::unique_ptr<Engine> engine_;
  Effects effects_;
  Micros now_ = 0;
  std::string said_;
  std::map<std::string, Process> processes_;
  std::map<ConnectionId, std::string> labels_;
  std::map<std::pair<ConnectionId, RequestId>, std::string> titles_;
  ConnectionId next_connection_ = 1;
  RequestId next_request_ = 1;
  std::map<JobId, std::vector<Record>> stored_;
  std::map<JobId, JobSnapshot> snapshots_;
  std::map<std::uint64_t, Plan> plans_, done_plans_;  // by id
};

}  // namespace

bool run_golden_script(const std::string& script, std::string& result, std::string& error) {
  Script run;
  std::istringstream lines(script);
  std::string line;
  result.clear();
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.starts_with("  ")) continue;  // what was expected; the run says it anew
    result += line + "\n";
    try {
      if (line.starts_with(">")) {
        result += run.perform(line.substr(1));
      } else if (!line.empty() && !line.starts_with("#")) {
        throw Malformed("a line begins with '#', '>' or two spaces");
      }
    } catch (const Malformed& malformed) {
      error = "line " + std::to_string(number) + " (" + line + "): " + malformed.what();
      return false;
    }
  }
  return true;
}

}  // namespace syncd::test
