// A session in virtual time with the test itself as the daemon: what the session sends is decoded
// and taken one message at a time, and answers are frames that the test makes. No I/O, no thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "libclient/session.h"
#include "print_status.h"

namespace syncd::client {

inline SessionOptions two_endpoints() {
  SessionOptions options;
  options.link.endpoints = {"unix:/run/a", "tcp:b:7117"};
  options.link.client_name = "tester";
  options.link.client_version = "9.9";
  options.link.seed = 1;
  return options;
}

inline SessionOptions one_endpoint() {
  SessionOptions options = two_endpoints();
  options.link.endpoints.resize(1);
  return options;
}

constexpr TimeUs kSecond = 1'000'000;

class Script {
 public:
  explicit Script(SessionOptions options = one_endpoint()) : session(std::move(options), now) {}

  // ---- Time: every deadline on the way is kept, at its exact moment.

  void advance(TimeUs span_us) { advance_to(now + span_us); }
  void advance_to(TimeUs target_us) {
    for (int steps = 0; session.next_deadline() <= target_us; ++steps) {
      ASSERT_LT(steps, 10'000) << "the session asks for the same moment for ever";
      now = std::max(now, session.next_deadline());
      session.on_time(now);
      collect();
    }
    now = target_us;
  }
  // Goes on until the session wishes for a connection.
  void await_wish() {
    for (int steps = 0; !session.wish().up; ++steps) {
      ASSERT_LT(steps, 1000);
      advance_to(session.next_deadline());
    }
  }

  // ---- The connection.

  // Makes the connection that is wished for, up to the Hello.
  wire::Hello connect() {
    await_wish();
    splitter = wire::FrameSplitter();
    sent.clear();
    session.on_connected(session.wish().number, now);
    collect();
    return take<wire::Hello>();
  }
  // Operation 1 waits for the connection.
  void start_connecting() {
    session.connect({1});
    connect();
  }
  void welcome() {
    connect();
    wire::Welcome message;
    message.protocol = kProtocolMax;
    message.session = 7;
    message.server_version = "1.2.3";
    message.max_frame_bytes = 65536;
    message.heartbeat_interval_ms = 1000;
    message.heartbeat_timeout_ms = 5000;
    answer(message);
  }
  void cut(std::string_view reason = "connection reset by peer") {
    session.on_disconnected(session.wish().number, reason, now);
    collect();
  }

  // ---- Messages from the session.

  // Decodes what the session has put out.
  void collect() {
    splitter.append(session.output().bytes());
    session.output().shrink(0);
    std::span<const std::uint8_t> payload;
    std::string error;
    while (splitter.next(payload, error) == wire::FrameSplitter::Result::kFrame) {
      wire::Message message;
      ASSERT_TRUE(wire::decode(payload, message, error)) << error;
      sent.push_back(std::move(message));
    }
    for (Completion& completion : session.completions()) {
      for (const Completion& earlier : completed) {
        EXPECT_NE(earlier.op, completion.op) << "an operation completed twice";
      }
      completed.push_back(std::move(completion));
    }
    session.completions().clear();
    for (const PendingEvent& pending : session.events()) pending.signals->deliver(pending.event);
    session.events().clear();
  }
  // The next message, which must be of this type; its id goes to `last_id`.
  template <typename Body>
  Body take() {
    collect();
    if (sent.empty()) {
      ADD_FAILURE() << "the session sent nothing where " << wire::body_name(Body{}) << " was due";
      return {};
    }
    wire::Message message = std::move(sent.front());
    sent.pop_front();
    last_id = message.id;
    if (!std::holds_alternative<Body>(message.body)) {
      ADD_FAILURE() << "the session sent " << wire::body_name(message.body) << " where "
                    << wire::body_name(Body{}) << " was due";
      return {};
    }
    return std::get<Body>(message.body);
  }
  bool quiet() {
    collect();
    return sent.empty();
  }

  // ---- Messages to the session.

  std::vector<std::uint8_t> frame(std::uint64_t id, wire::Body body) {
    std::vector<std::uint8_t> bytes;
    encoder.append({id, std::move(body)}, bytes);
    return bytes;
  }
  void feed(std::span<const std::uint8_t> bytes) {
    session.on_bytes(session.wish().number, bytes, now);
    collect();
  }
  void answer(wire::Body body) { answer(last_id, std::move(body)); }
  void answer(std::uint64_t id, wire::Body body) { feed(frame(id, std::move(body))); }
  void refuse(Status status, std::string message) {
    answer(wire::Error{status, std::move(message)});
  }
  void notify(wire::Body body) { answer(0, std::move(body)); }

  // ---- Operations: each returns its id.

  static JoinRequest request(std::string name = "w", std::int32_t rank = 3) {
    JoinRequest request;
    request.job = "mf";
    request.policy = "ssp:3";
    request.name = std::move(name);
    request.host = "node-a";
    request.rank = rank;
    request.world_size = 4;
    return request;
  }
  OpId start_join(JoinRequest given, TimeUs timeout_us = 60 * kSecond) {
    const OpId op = next_op++;
    session.join({op, deadline(timeout_us), now}, std::move(given));
    collect();
    return op;
  }
  // Any call about `worker`.
  template <typename Call, typename... Given>
  OpId about(Call call, TimeUs timeout_us, Given... given) {
    const OpId op = next_op++;
    (session.*call)({op, deadline(timeout_us), now}, worker, std::move(given)...);
    collect();
    return op;
  }
  OpId begin(TimeUs timeout_us = kNever) { return about(&Session::begin, timeout_us); }
  OpId push(std::int64_t iteration, TimeUs timeout_us = 60 * kSecond) {
    return about(&Session::push, timeout_us, iteration, info);
  }
  OpId targets(std::int64_t iteration, TimeUs timeout_us = kNever) {
    return about(&Session::targets, timeout_us, iteration);
  }
  OpId collect(std::int64_t iteration, TimeUs timeout_us = kNever) {
    return about(&Session::collect, timeout_us, iteration);
  }
  OpId consumed(std::int64_t iteration, TimeUs timeout_us = 60 * kSecond) {
    return about(&Session::consumed, timeout_us, iteration);
  }
  OpId restarted(std::int64_t iteration, TimeUs timeout_us = 60 * kSecond) {
    return about(&Session::restarted, timeout_us, iteration);
  }
  OpId phase(std::string name, TimeUs lease_us, TimeUs timeout_us = 60 * kSecond) {
    return about(&Session::phase, timeout_us, std::move(name), lease_us);
  }
  OpId leave(TimeUs timeout_us = 60 * kSecond) { return about(&Session::leave, timeout_us); }
  OpId explain(TimeUs timeout_us = 60 * kSecond) { return about(&Session::explain, timeout_us); }
  OpId members(TimeUs timeout_us = 60 * kSecond) { return about(&Session::members, timeout_us); }
  OpId cancel_begin(TimeUs timeout_us = 60 * kSecond) {
    return about(&Session::cancel_begin, timeout_us);
  }
  Timeout deadline(TimeUs timeout_us) const { return Timeout::after(timeout_us, now); }

  // ---- Ends of operations.

  bool done(OpId op) const { return find(op) != nullptr; }
  Completion end(OpId op) const {
    const Completion* found = find(op);
    if (found != nullptr) return *found;
    ADD_FAILURE() << "operation " << op << " has not completed";
    Completion none;
    none.status = Status::kInternal;
    return none;
  }
  Status status(OpId op) const { return end(op).status; }
  std::string text(OpId op) const { return end(op).message; }
  // What it brought; `none` if it failed or brought something else.
  template <typename Result>
  Result result(OpId op, Result none = {}) const {
    const Completion completion = end(op);
    EXPECT_EQ(completion.status, Status::kOk) << completion.message;
    const auto* result = std::get_if<Result>(&completion.result);
    return result != nullptr ? *result : none;
  }
  Step step(OpId op) const { return result<Step>(op, make_step(-99, 0, -99)); }
  std::vector<std::uint32_t> ranks(OpId op) const {
    return result<TargetsResult>(op, {-1, {999}}).ranks;
  }
  std::vector<wire::PeerUpdate> updates(OpId op) const { return result<CollectResult>(op).updates; }
  MembersResult list(OpId op) const { return result<MembersResult>(op); }
  const Completion* find(OpId op) const {
    for (const Completion& completion : completed) {
      if (completion.op == op) return &completion;
    }
    return nullptr;
  }

  // Of an operation that may take no time.
  std::string text_now(OpId op) {
    advance(0);
    return text(op);
  }
  // A begin's time is over, and the daemon has no more to say of it.
  void explained_after(TimeUs span_us) {
    advance(span_us);
    take<wire::Explain>();
    answer(Explanation{});
  }

  // ---- The usual beginnings.

  static wire::Joined joined(std::int64_t iteration = 0, std::uint64_t incarnation = 11,
                             std::uint32_t rank = 3) {
    wire::Joined message;
    message.worker = {5, rank, 1, incarnation};
    message.iteration = iteration;
    message.policy = "ssp:3";
    message.world_size = 4;
    message.durable = true;
    return message;
  }
  // Connected, welcomed, and `worker` joined as rank 3.
  void join_one() { join_one(request()); }
  void join_one(JoinRequest given) {
    welcome();
    given.signals = signals;
    const OpId op = start_join(std::move(given));
    take<wire::Join>();
    answer(joined());
    ASSERT_EQ(status(op), Status::kOk);
    worker = std::get<JoinResult>(end(op).result).worker;
  }
  // Answers to the message that was taken last.
  void confirmed(OpId op) {
    answer(wire::Ok{});
    EXPECT_EQ(status(op), Status::kOk) << text(op);
  }
  void begin_granted(OpId op, std::int64_t iteration) {
    answer(wire::Granted{iteration, 0, 0});
    EXPECT_EQ(step(op).iteration, iteration);
  }
  void push_counted(OpId op, std::int64_t iteration) {
    answer(wire::Pushed{iteration, false, false});
    EXPECT_EQ(status(op), Status::kOk) << text(op);
  }
  // A begin that is granted at once.
  void granted(std::int64_t iteration) {
    const OpId op = begin();
    EXPECT_EQ(take<wire::Begin>().iteration, iteration);
    begin_granted(op, iteration);
  }
  void pushed(std::int64_t iteration) {
    const OpId op = push(iteration);
    EXPECT_EQ(take<wire::Push>().iteration, iteration);
    push_counted(op, iteration);
  }
  void iterated(std::int64_t iteration) {
    granted(iteration);
    pushed(iteration);
  }
  // Calls of which the message is on its way.
  OpId ask_begin(TimeUs timeout_us = kNever) {
    const OpId op = begin(timeout_us);
    take<wire::Begin>();
    return op;
  }
  OpId send_push(std::int64_t iteration, TimeUs timeout_us = 60 * kSecond) {
    const OpId op = push(iteration, timeout_us);
    take<wire::Push>();
    return op;
  }
  // An iteration of a decentralized job up to the push.
  void exchanged(std::int64_t iteration) {
    granted(iteration);
    const OpId op = targets(iteration);
    EXPECT_EQ(take<wire::Targets>().iteration, iteration);
    answer(wire::TargetsReply{iteration, {2, 0}});
    EXPECT_EQ(status(op), Status::kOk) << text(op);
    pushed(iteration);
  }
  void collected(std::int64_t iteration) {
    const OpId op = collect(iteration);
    EXPECT_EQ(take<wire::Collect>().iteration, iteration);
    answer(set(iteration));
    EXPECT_EQ(status(op), Status::kOk) << text(op);
  }
  void exchanged_and_collected(std::int64_t iteration) {
    exchanged(iteration);
    collected(iteration);
  }
  static wire::CollectReply set(std::int64_t iteration) {
    return {iteration, {{2, iteration, 0.25}, {3, iteration, 0.75}}};
  }
  void reconnect() {
    cut();
    welcome();
  }
  // Welcomed again, and the worker taken back.
  wire::Join resumed(std::int64_t iteration, std::uint64_t incarnation = 11) {
    welcome();
    const wire::Join join = take<wire::Join>();
    answer(joined(iteration, incarnation));
    return join;
  }

  TimeUs now = 100 * kSecond;
  Session session;
  std::shared_ptr<WorkerSignals> signals = std::make_shared<WorkerSignals>();
  WorkerId worker = kNoWorker;
  PushInfo info;
  OpId next_op = 1;
  std::uint64_t last_id = 0;
  std::deque<wire::Message> sent;
  std::vector<Completion> completed;
  wire::FrameSplitter splitter;
  wire::Encoder encoder;
};

struct WelcomedScript : Script {
  WelcomedScript() { welcome(); }
};

struct JoinedScript : Script {
  explicit JoinedScript(SessionOptions options = one_endpoint()) : Script(std::move(options)) {
    join_one();
  }
};

// In iteration 0, and after it.
struct GrantedScript : JoinedScript {
  GrantedScript() { granted(0); }
};
struct IteratedScript : JoinedScript {
  IteratedScript() { iterated(0); }
};

}  // namespace syncd::client
