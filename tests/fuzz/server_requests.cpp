// Requests to a whole daemon (server::Server on a loop in this thread, over real sockets, with a
// store in memory) from an administrator and from two groups that may use jobs of their own alone:
// each byte is a decision. What the daemon's edge decides and answers itself is asked for beside
// what the engine does: status, history, copies of the store. Nobody hears of another group's jobs
// or changes a job without the right to; every request is answered once; of each that changes
// something the log tells once, with what came of it; and a history is whole, however it is read.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "daemon/core/engine/request_traits.h"
#include "daemon/edge/net/loop_guard.h"
#include "daemon/edge/server/server.h"
#include "daemon/edge/store/record_codec.h"
#include "proto/base/defaults.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/memory_file.h"
#include "tests/support/choices.h"

namespace {

using namespace syncd;

constexpr int kStepsMax = 60;
constexpr std::string_view kTokens =
    "[boss] a-token-of-the-boss\n"
    "[team-a] a-token-of-team-a\n"
    "[team-b] a-token-of-team-b\n";
const std::array<std::string, 8> kJobs = {"a",  "b", "a2", "#1",
                                          "#2", "c", "",   std::string(65, 'a')};
constexpr std::array<const char*, 6> kPolicies = {"asp",      "bsp",     "ssp:2",
                                                  "hop:ring", "nothing", "hop:file:/none"};
constexpr std::array<std::int64_t, 6> kOdd = {-1, INT64_MIN, INT64_MAX, 1 << 20, 1, 1000};

class Client {
 public:
  Client(std::uint16_t port, std::string token, std::string jobs)
      : token_(std::move(token)), jobs_(std::move(jobs)) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fuzz::require(fd_ >= 0, "no socket", std::strerror(errno));
    // A signal of the fuzzer's may interrupt it, and then it goes on by itself.
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      fuzz::require(errno == EINTR, "no connection", std::strerror(errno));
      pollfd connecting{fd_, POLLOUT, 0};
      while (poll(&connecting, 1, -1) < 0) {
      }
    }
    // No state of the connection is left when it is closed: there are thousands a minute.
    const linger at_once{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void hello() { send({1, wire::Hello{kProtocolMin, kProtocolMax, "fuzz", "1", token_}}); }
  void send(const wire::Message& message) {
    const std::vector<std::uint8_t> frame = fuzz::frame_of(message);
    fuzz::require(
        ::send(fd_, frame.data(), frame.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(frame.size()),
        "nothing can be sent to the daemon", wire::body_name(message.body));
    standing_[message.id] = std::string(wire::body_name(message.body));
  }
  void receive() {
    std::array<std::uint8_t, 65536> buffer;
    for (;;) {
      const ssize_t count = recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (count < 0) break;
      fuzz::require(count > 0, "the daemon hangs up");
      splitter_.append({buffer.data(), static_cast<std::size_t>(count)});
    }
    std::span<const std::uint8_t> payload;
    std::string error;
    while (splitter_.next(payload, error) == wire::FrameSplitter::Result::kFrame) {
      wire::Message message;
      fuzz::require(wire::decode(payload, message, error), "a broken message", error);
      fuzz::require_sound(message);
      if (message.id == 0) continue;
      fuzz::require(standing_.erase(message.id) == 1, "an answer that nobody waits for",
                    wire::body_name(message.body));
      if (const auto* wrong = std::get_if<wire::Error>(&message.body)) {
        fuzz::require(!wrong->message.empty(), "an error without a text");
        fuzz::require(wrong->message.find("a-token-of") == std::string::npos, "a token in a text");
      }
      answers_[message.id] = std::move(message.body);
    }
    fuzz::require(error.empty(), "a broken frame", error);
  }
  std::optional<wire::Body> take(std::uint64_t id) {
    const auto at = answers_.find(id);
    if (at == answers_.end()) return {};
    wire::Body body = std::move(at->second);
    answers_.erase(at);
    return body;
  }
  bool is_admin() const { return jobs_.empty(); }
  // As the rules of the daemon below have it.
  bool may_use(const std::string& job) const { return is_admin() || job.starts_with(jobs_); }

 private:
  int fd_ = -1;
  std::string token_;
  std::string jobs_;  // what the names of its jobs begin with; empty: it is the administrator
  wire::FrameSplitter splitter_;
  std::map<std::uint64_t, std::string> standing_;
  std::map<std::uint64_t, wire::Body> answers_;
};

// The job that a request of the job's users names; null: it is of another kind.
const std::string* job_used_by(const wire::Body& request) {
  return std::visit(
      [](const auto& body) -> const std::string* {
        constexpr const auto& row = kTraits<std::decay_t<decltype(body)>>;
        if constexpr (row.asker == Asker::kJobUser) {
          return &(body.*row.job);
        } else {
          return nullptr;
        }
      },
      request);
}

std::optional<Status> status_of(const wire::Body& answer) {
  const auto* error = std::get_if<wire::Error>(&answer);
  return error != nullptr ? std::optional(error->status) : std::nullopt;
}

class World {
 public:
  explicit World(test::ByteChoices& choices) : choices_(choices) {
    fuzz::require(uv_loop_init(&loop_) == 0, "no loop");
    control_ = choices_.one_in(3);
    std::vector<net::ListenSocket> sockets;
    std::array<std::uint16_t, 2> ports{};
    std::string error;
    for (const bool control : {false, true}) {
      if (control && !control_) continue;
      fuzz::require(net::open_tcp_sockets({"127.0.0.1", 0}, sockets, error), "no socket", error);
      sockets.back().is_control = control;
      const std::string& endpoint = sockets.back().endpoint;
      ports[control ? 1 : 0] =
          static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
    }
    server::ServerOptions options;
    options.version = "0";
    options.engine.snapshot_every_records = 20;
    options.engine.defaults.policy = "asp";
    options.admission.token_file = tokens_.path();
    options.admission.admin = {"token:boss"};
    options.admission.allow = {{"token:boss", "*"}, {"token:team-a", "a*"}, {"token:team-b", "b*"}};
    if (control_) options.control_tcp = {{"127.0.0.1", ports[1]}};
    options.shutdown_timeout_us = 60'000'000;
    // Clients here say nothing of their own accord, however long the machine stands still.
    options.network.connection.idle_timeout_ms = 600'000;
    server_ =
        std::make_unique<server::Server>(&loop_, std::move(options), store::make_memory_store(),
                                         [this](const LogLine& line) { note(line); });
    server_->inherit(std::move(sockets));
    fuzz::require(server_->start(error) == server::StartError::kNone, "it does not start", error);
    clients_.push_back(
        std::make_unique<Client>(ports[control_ ? 1 : 0], "a-token-of-the-boss", ""));
    clients_.push_back(std::make_unique<Client>(ports[0], "a-token-of-the-boss", ""));
    clients_.push_back(std::make_unique<Client>(ports[0], "a-token-of-team-a", "a"));
    clients_.push_back(std::make_unique<Client>(ports[0], "a-token-of-team-b", "b"));
    for (const auto& client : clients_) {
      client->hello();
      const wire::Body answer = wait(*client, 1);
      fuzz::require(std::holds_alternative<wire::Welcome>(answer), "somebody is not let in");
    }
  }
  ~World() {
    clients_.clear();
    bool stopped = false;
    server_->stop("the input is at its end", [&](const std::string& problem) {
      fuzz::require(problem.empty(), "it does not stop in order", problem);
      stopped = true;
    });
    turn_until([&] { return stopped; });
    server_.reset();
    fuzz::require(uv_loop_close(&loop_) == 0, "a handle was not closed");
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void run() {
    for (int i = 0; i < kStepsMax && !choices_.used_up(); ++i) request();
    for (const auto& client : clients_) read_all(*client);
  }

 private:
  struct Known {
    wire::WorkerRef ref;
    std::string job;
    std::int64_t next = 0;
    std::size_t client = 0;
  };

  void note(const LogLine& line) {
    // Of what one client was refused, no more than some stand there as such.
    const bool is_one_more = line.event == "refused_audit";
    if (line.event != "audit" && !is_one_more) return;
    std::string result;
    bool by_join = false;
    for (const auto& [name, value] : line.fields) {
      if (name == "result") result = value;
      by_join = by_join || name == "by";
    }
    fuzz::require(!is_one_more || result != "done", "a change is told of as a refusal", result);
    if (!by_join) audits_.push_back(result);
  }

  void turn_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int turns = 0; !done(); ++turns) {
      fuzz::require(std::chrono::steady_clock::now() < deadline, "nothing comes of it");
      uv_run(&loop_, UV_RUN_NOWAIT);
      if (net::loop_failure != nullptr) std::rethrow_exception(net::loop_failure);
      if (turns > 50) poll(nullptr, 0, 1);
    }
  }
  wire::Body wait(Client& client, std::uint64_t id) {
    std::optional<wire::Body> answer;
    turn_until([&] {
      client.receive();
      answer = client.take(id);
      return answer.has_value();
    });
    return *std::move(answer);
  }
  template <class T>
  T ask(Client& client, wire::Body body) {
    const std::uint64_t id = next_id_++;
    client.send({id, std::move(body)});
    wire::Body answer = wait(client, id);
    fuzz::require(std::holds_alternative<T>(answer), "another answer", wire::body_name(answer));
    return std::get<T>(std::move(answer));
  }

  // ---- one request

  void request() {
    const std::size_t who = choices_.below(clients_.size());
    Client& client = *clients_[who];
    about_ = nullptr;
    const wire::Body body = make_body(who);
    audits_.clear();
    const std::uint64_t id = next_id_++;
    client.send({id, body});
    if (std::holds_alternative<wire::Begin>(body)) {
      // It may stand; the next one of the same client is answered after it was looked at.
      ask<wire::StatusReply>(client, wire::StatusRequest{});
      const auto answer = client.take(id);
      if (answer) check(who, body, *answer);
      return;
    }
    check(who, body, wait(client, id));
  }

  void check(std::size_t who, const wire::Body& body, const wire::Body& answer) {
    const std::string name(wire::body_name(body));
    const auto status = status_of(answer);
    if (const auto expected = refusal(who, body)) {
      fuzz::require(status == expected, "it is not refused as it should be",
                    name + " of client " + std::to_string(who) + ": " +
                        std::string(status_name(status.value_or(Status::kOk))));
    } else {
      fuzz::require(status != Status::kAuth || names_file(body), "one is refused who may", name);
    }
    if (facts_of(body).is_administrative()) {
      fuzz::require(audits_.size() == 1, "the log does not tell of it once", name);
      fuzz::require(audits_[0] == (status ? std::string(status_name(*status)) : "done"),
                    "the log tells of another result", audits_[0]);
    } else {
      fuzz::require(audits_.empty(), "the log tells of a change that is none", name);
    }
    if (const auto* joined = std::get_if<wire::Joined>(&answer)) {
      known_.push_back({joined->worker, name_of(joined->worker.job), joined->iteration, who});
    } else if (const auto* granted = std::get_if<wire::Granted>(&answer)) {
      about_->next = granted->iteration;
    } else if (const auto* pushed = std::get_if<wire::Pushed>(&answer)) {
      about_->next = pushed->iteration + 1;
    } else if (const auto* jobs = std::get_if<wire::JobsReply>(&answer)) {
      check_jobs(*clients_[who], *jobs);
    } else if (const auto* history = std::get_if<wire::HistoryReply>(&answer)) {
      const auto& asked = std::get<wire::HistoryRequest>(body);
      fuzz::require(asked.records_max == 0 || history->records.size() <= asked.records_max,
                    "more of a history than was asked for");
      fuzz::require(
          history->records.empty() || history->records.front().sequence >= asked.from_sequence,
          "a history from before what was asked for");
    }
  }

  // It may have been joined under its number.
  std::string name_of(JobId id) {
    std::string name = name_of_text("#" + std::to_string(id));
    fuzz::require(!name.starts_with('#'), "a joined job is not listed");
    return name;
  }
  // Of "#" and the number of a job: its name. Anything else is returned as it is.
  std::string name_of_text(const std::string& job) {
    if (!job.starts_with('#')) return job;
    for (const wire::JobStatus& one :
         ask<wire::JobsReply>(*clients_[0], wire::JobsRequest{}).jobs) {
      if (job == "#" + std::to_string(one.id)) return one.name;
    }
    return job;
  }

  // What must come of it for who asks, whatever the engine would say.
  std::optional<Status> refusal(std::size_t who, const wire::Body& body) {
    const Client& client = *clients_[who];
    if (facts_of(body).is_administrative()) {
      if (!client.is_admin() || (control_ && who != 0)) return Status::kAuth;
      if (const auto* copy = std::get_if<wire::CheckpointRequest>(&body)) {
        // A store in memory has no files to copy.
        return copy->path.starts_with('/') && copy->path.find('\0') == std::string::npos
                   ? Status::kStore
                   : Status::kInvalid;
      }
      return {};
    }
    if (const std::string* job = job_used_by(body)) {
      return client.may_use(name_of_text(*job)) ? std::nullopt : std::optional(Status::kAuth);
    }
    // A job that is not one's own is not there; one's own is not spoken of for another's worker.
    if (about_ == nullptr) return {};
    if (!client.may_use(about_->job)) return Status::kUnknownJob;
    return {};
  }
  static bool names_file(const wire::Body& body) {
    const auto* join = std::get_if<wire::Join>(&body);
    return join != nullptr && join->policy.find("file:") != std::string::npos;
  }

  std::string job() { return choices_.pick(kJobs); }
  std::int64_t number(std::int64_t likely) {
    return choices_.one_in(6) ? choices_.pick(kOdd) : likely;
  }
  Known worker() {
    if (known_.empty()) return {};
    about_ = &known_[choices_.below(known_.size())];
    Known known = *about_;
    if (choices_.one_in(12)) known.ref.incarnation += 1;
    if (choices_.one_in(12)) known.ref.epoch += 1;
    return known;
  }

  wire::Body make_body(std::size_t who) {
    switch (choices_.below(16)) {
      case 0:
      case 1:
      case 2: {
        wire::Join join;
        // Of its own group, mostly.
        join.job = choices_.one_in(3) ? job() : who == 3 ? "b" : "a";
        if (choices_.one_in(2)) join.policy = choices_.pick(kPolicies);
        join.name = std::string(1, static_cast<char>('p' + choices_.below(4)));
        if (choices_.one_in(4)) join.incarnation = 1 + choices_.below(3);
        return join;
      }
      case 3: {
        const Known known = worker();
        return wire::Begin{known.ref, known.next};
      }
      case 4: {
        const Known known = worker();
        const std::int64_t computed_us =
            choices_.one_in(2) ? -1 : static_cast<std::int64_t>(choices_.below(200)) - 20;
        return wire::Push{known.ref, known.next, std::nullopt, 1, 1, computed_us};
      }
      case 5:
        if (choices_.one_in(2)) return wire::Leave{worker().ref};
        if (choices_.one_in(2)) return wire::Explain{worker().ref};
        if (choices_.one_in(3)) return wire::ExcludeRequest{job(), "h", false, true, ""};
        if (choices_.one_in(4)) return wire::InspectRequest{job(), "p", choices_.one_in(2)};
        if (choices_.one_in(4)) return wire::Inspected{worker().ref, 1, {255}};
        if (choices_.one_in(4)) return wire::Exchanging{worker().ref, 1, number(1)};
        if (choices_.one_in(2)) return wire::ViewRequest{worker().ref, 1, 0};
        {
          const Known known = worker();
          return wire::Arrive{known.ref, known.next, {1}};
        }
      case 6:
        return wire::MembersRequest{worker().ref, static_cast<std::uint32_t>(number(0))};
      case 7:
        return wire::StatusRequest{};
      case 8:
        return wire::JobsRequest{};
      case 9:
        return wire::WorkersRequest{job(), static_cast<std::uint32_t>(number(0)),
                                    choices_.one_in(2)};
      case 10:
        return wire::HistoryRequest{job(), static_cast<std::uint64_t>(number(1)),
                                    static_cast<std::uint32_t>(number(0)),
                                    static_cast<std::uint64_t>(number(0))};
      case 11: {
        constexpr std::array<std::string_view, 4> kPaths = {"", "here", "/nowhere/copy",
                                                            std::string_view("/no\0where", 9)};
        return wire::CheckpointRequest{std::string(choices_.pick(kPaths))};
      }
      case 12:
        return wire::CreateJobRequest{job(), choices_.pick(kPolicies),
                                      static_cast<std::uint32_t>(number(1)), 0};
      case 13:
        return wire::StopJobRequest{job(), choices_.one_in(8) ? std::string(600, 'y') : ""};
      case 14:
        return wire::SetPolicyRequest{job(), choices_.pick(kPolicies)};
      default: {
        wire::ManageWorkerRequest manage;
        manage.job = job();
        manage.worker = std::string(1, static_cast<char>('p' + choices_.below(5)));
        manage.action = static_cast<wire::WorkerAction>(choices_.below(4));
        manage.text = choices_.one_in(8) ? std::string(600, 'y') : "evaluation";
        manage.lease_us = number(1'000'000);
        return manage;
      }
    }
  }

  // ---- what one client may see at the end

  static void check_jobs(const Client& client, const wire::JobsReply& reply) {
    for (const wire::JobStatus& job : reply.jobs) {
      fuzz::require(client.may_use(job.name), "another group's job is shown", job.name);
    }
  }

  void read_all(Client& client) {
    const auto jobs = ask<wire::JobsReply>(client, wire::JobsRequest{});
    const auto status = ask<wire::StatusReply>(client, wire::StatusRequest{});
    check_jobs(client, jobs);
    std::uint32_t going = 0;
    std::uint64_t pushes = 0;
    for (const wire::JobStatus& job : jobs.jobs) {
      if (job.state != "stopped") ++going;
      pushes += job.pushes;
      read_history(client, job);
    }
    fuzz::require(status.jobs == going, "the status counts other jobs");
    fuzz::require(status.pushes == pushes, "the status counts other pushes");
    fuzz::require(
        !status.read_only && status.sessions == clients_.size() && status.store == "memory",
        "a status of another daemon");
  }

  // From the first record to the last, a few at a time; every record is one.
  void read_history(Client& client, const wire::JobStatus& job) {
    // A name means the latest job that has it.
    if (client.is_admin()) return read_history(client, "#" + std::to_string(job.id), job.pushes);
    const auto workers = ask<wire::WorkersReply>(client, wire::WorkersRequest{job.name, 0, false});
    fuzz::require(workers.next_rank < 0, "so few workers fill an answer");
    read_history(client, job.name, std::nullopt);
  }
  void read_history(Client& client, const std::string& job, std::optional<std::uint64_t> pushes) {
    std::uint64_t expected = 1;
    std::uint64_t counted = 0;
    std::uint64_t next = 1;
    while (next != 0) {
      const auto page = ask<wire::HistoryReply>(client, wire::HistoryRequest{job, next, 2, 0});
      fuzz::require(page.first_sequence == 1 && page.bytes_left == 0, "a history is cut", job);
      for (const wire::StoredRecord& stored : page.records) {
        Record record;
        std::string error;
        fuzz::require(stored.sequence == expected, "a history has a gap", job);
        fuzz::require(store::decode_record(stored.bytes, record, error), "a damaged record", error);
        fuzz::require(record.sequence == expected, "a record stands in another's place", job);
        ++expected;
        if (record.kind == RecordKind::kPush && !record.late) ++counted;
      }
      fuzz::require(page.next_sequence == 0 || page.next_sequence == expected,
                    "a history goes on elsewhere", job);
      next = page.next_sequence;
    }
    fuzz::require(expected > 1, "a job without a history", job);
    fuzz::require(!pushes || *pushes >= counted, "a history has pushes that do not count", job);
  }

  test::ByteChoices& choices_;
  fuzz::MemoryFile tokens_{kTokens};
  uv_loop_t loop_;
  bool control_ = false;  // administrative requests are accepted over a socket of their own alone
  std::unique_ptr<server::Server> server_;
  std::vector<std::unique_ptr<Client>> clients_;  // [0], [1]: the administrator's
  std::uint64_t next_id_ = 2;
  std::vector<std::string> audits_;  // the results, since the latest request began
  std::deque<Known> known_;
  Known* about_ = nullptr;  // the worker that the request is about
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool ignored = [] { return std::signal(SIGPIPE, SIG_IGN) != SIG_ERR; }();
  fuzz::require(ignored, "SIGPIPE cannot be ignored");
  syncd::test::ByteChoices choices({data, size});
  World(choices).run();
  return 0;
}
