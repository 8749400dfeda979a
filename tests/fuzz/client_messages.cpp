// What a daemon says to the client library's session, right or wrong: each byte is a decision to
// call something, to answer something, to say whatever the next bytes are, or to let time pass.
// Every call completes exactly once, with a text if it fails; and what the session says is what a
// daemon takes.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/edge/net/session.h"
#include "libclient/session.h"
#include "tests/fuzz/check.h"

namespace {

using namespace syncd;
using client::Timeout;

constexpr int kStepsMax = 400;
constexpr std::size_t kWorkersMax = 4;

class World {
 public:
  explicit World(std::span<const std::uint8_t> input) : input_(input), session_(options(), now_) {}

  void run() {
    for (int i = 0; i < kStepsMax && !input_.empty(); ++i) {
      act();
      follow();
    }
    session_.close();
    follow();
    fuzz::require(open_.empty(), "a call never completes");
    fuzz::require(!session_.wish().up, "a closed session wants a connection");
  }

 private:
  static client::SessionOptions options() {
    client::SessionOptions options;
    options.link.endpoints = {"a", "b"};
    options.link.client_name = "fuzz";
    options.reconnect_timeout_us = 10'000'000;
    return options;
  }

  std::uint64_t below(std::uint64_t n) {
    if (input_.empty()) return 0;
    const std::uint8_t byte = input_.front();
    input_ = input_.subspan(1);
    return byte % n;
  }

  void act() {
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        return call();
      case 3:
      case 4:
        return answer();
      case 5:
        return notify();
      case 6:
        return say_anything();
      default:
        break;
    }
    switch (below(4)) {
      case 0:
        now_ = std::max(now_, std::min(session_.next_deadline(), now_ + 60'000'000));
        break;
      case 1:
        now_ += static_cast<client::TimeUs>(below(256)) * 20'000;
        break;
      case 2:
        session_.on_disconnected(number_, "cut", now_);
        connected_ = false;
        return;
      default:
        session_.on_refused(number_, Status::kAuth, "not you", now_);
        connected_ = false;
        return;
    }
    session_.on_time(now_);
  }

  // ---- the application

  client::OpId op() {
    open_.insert(next_op_);
    return next_op_++;
  }
  Timeout timeout() {
    constexpr client::TimeUs kSpans[] = {0, 100'000, 5'000'000, client::kNever};
    return Timeout::after(kSpans[below(4)], now_);
  }

  void call() {
    const std::uint64_t which = below(16);
    if (workers_.empty() || which == 0) {
      if (joins_ >= kWorkersMax) return;
      ++joins_;
      client::JoinRequest request;
      request.job = "a";
      request.name = "w" + std::to_string(joins_);
      request.rank = static_cast<std::int32_t>(below(3)) - 1;
      request.signals = std::make_shared<client::WorkerSignals>(
          nullptr, below(2) == 0 ? std::function<void(const client::Event&)>()
                                 : [](const client::Event&) {});
      const client::OpId id = op();
      joining_[id] = request.signals;
      session_.join({id, timeout(), now_}, std::move(request));
      return;
    }
    const client::WorkerId worker = workers_[below(workers_.size())];
    std::int64_t& iteration = iterations_[worker];
    const std::int64_t k = below(8) == 0 ? static_cast<std::int64_t>(below(256)) - 128 : iteration;
    switch (which) {
      case 1:
        return session_.connect({op(), timeout(), now_});
      case 2:
      case 3:
      case 4:
        return session_.begin({op(), timeout(), now_}, worker);
      case 5:
      case 6:
        if (iteration % 2 == 0) signals_.at(worker)->mark_computed(now_);
        ++iteration;
        return session_.push({op(), timeout(), now_}, worker, k, {});
      case 7:
        return session_.targets({op(), timeout(), now_}, worker, k);
      case 8:
        return session_.collect({op(), timeout(), now_}, worker, k);
      case 9:
        return session_.consumed({op(), timeout(), now_}, worker, k);
      case 10:
        return session_.restarted({op(), timeout(), now_}, worker, k);
      case 11:
        return session_.phase({op(), timeout(), now_}, worker, below(2) == 0 ? "" : "checkpoint",
                              1'000'000);
      case 12:
        return session_.explain({op(), timeout(), now_}, worker);
      case 13:
        return session_.members({op(), timeout(), now_}, worker);
      case 14:
        return session_.cancel_begin({op(), timeout(), now_}, worker);
      default:
        if (below(4) != 0) return session_.leave({op(), timeout(), now_}, worker);
        session_.release(worker, now_);
        std::erase(workers_, worker);
    }
  }

  // ---- the connection

  void follow() {
    read_output();
    for (int i = 0; i < 8 && session_.wish().number != number_; ++i) {
      number_ = session_.wish().number;
      fuzz::require(session_.wish().endpoint < 2 + client::kLearnedEndpointsMax,
                    "endpoints without end");
      fuzz::require(!session_.endpoint(session_.wish().endpoint).empty(), "an unknown endpoint");
      splitter_ = wire::FrameSplitter();
      requests_.clear();
      connected_ = session_.wish().up;
      if (connected_) session_.on_connected(number_, now_);
      read_output();
    }
    for (const client::Completion& done : std::exchange(session_.completions(), {})) {
      fuzz::require(open_.erase(done.op) == 1, "a call completes twice");
      fuzz::require((done.status == Status::kOk) == done.message.empty(),
                    "a failure without a text, or a text without a failure", done.message);
      fuzz::require(static_cast<std::int32_t>(done.status) <= 0, "a status above 0");
      if (const auto* joined = std::get_if<client::JoinResult>(&done.result)) {
        workers_.push_back(joined->worker);
        iterations_[joined->worker] = joined->iteration;
        signals_[joined->worker] = joining_.at(done.op);
      }
    }
    for (const client::PendingEvent& event : std::exchange(session_.events(), {})) {
      fuzz::require(event.signals != nullptr && event.signals->listens(), "an event for nobody");
      event.signals->deliver(event.event);
    }
  }

  void read_output() {
    if (connected_) splitter_.append(session_.output().bytes());
    session_.output().shrink(0);
    if (!connected_) return;
    std::span<const std::uint8_t> payload;
    std::string error;
    for (;;) {
      const auto result = splitter_.next(payload, error);
      fuzz::require(result != wire::FrameSplitter::Result::kError, "a broken frame", error);
      if (result == wire::FrameSplitter::Result::kNeedMore) return;
      wire::Message message;
      fuzz::require(wire::decode(payload, message, error), "a broken message", error);
      if (const auto* push = std::get_if<wire::Push>(&message.body)) {
        fuzz::require(push->computed_us >= -1, "a mark before its iteration");
      }
      if (std::holds_alternative<wire::Hello>(message.body)) {
        requests_.clear();
        answer_hello(message.id);
        continue;
      }
      const net::Route route = net::route(message, error);
      fuzz::require(route != net::Route::kBroken && route != net::Route::kUnsupported,
                    "a daemon would not take this", error);
      if (route == net::Route::kHandler) requests_.emplace_back(std::move(message));
      if (requests_.size() > 64) requests_.pop_front();
    }
  }

  void say(const wire::Message& message) { say(fuzz::frame_of(message)); }
  void say(const std::vector<std::uint8_t>& frame) {
    if (connected_) session_.on_bytes(number_, frame, now_);
  }

  // ---- the daemon

  wire::WorkerRef ref() { return {1, static_cast<std::uint32_t>(below(3)), 1, 1 + below(3)}; }
  std::int64_t iteration() { return static_cast<std::int64_t>(below(16)) - 2; }

  void answer() {
    if (requests_.empty()) return;
    const std::size_t which = below(requests_.size());
    const wire::Message request = requests_[which];
    if (below(8) != 0) requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(which));
    say({request.id, below(8) == 0 ? any_body() : answer_to(request.body)});
  }

  void answer_hello(std::uint64_t id) {
    wire::Welcome welcome{1, 5, "0.1.0", 65536, 1500, 5000};
    switch (below(8)) {
      case 0:
        return;
      case 1:
        return say({id, wire::Redirect{static_cast<std::uint32_t>(below(4)), addresses(),
                                       static_cast<std::uint32_t>(below(4)) * 1'000'000'000}});
      case 2:
        welcome.shard = static_cast<std::uint32_t>(below(4));
        welcome.shards = static_cast<std::uint32_t>(below(4));
        break;
      default:
        break;
    }
    say({id, welcome});
  }

  // Some are good, some are none, and there may be many.
  std::string addresses() {
    constexpr const char* kAddresses[] = {"tcp:h", "tls:h", "unix:/run/", "a", "tcp:[::1]:", ","};
    std::string list;
    for (std::uint64_t left = below(32); left > 0; --left) {
      list += kAddresses[below(6)] + std::to_string(below(256)) + (below(8) == 0 ? "\xff" : ",");
    }
    return list;
  }

  wire::Body answer_to(const wire::Body& request) {
    if (std::holds_alternative<wire::Join>(request)) {
      return wire::Joined{ref(), iteration(), "ssp:3", 3, below(2) == 0, below(2) == 0, below(4)};
    }
    if (const auto* begin = std::get_if<wire::Begin>(&request)) {
      return wire::Granted{begin->iteration + (below(8) == 0 ? iteration() : 0),
                           static_cast<std::uint32_t>(below(16)), iteration()};
    }
    if (const auto* push = std::get_if<wire::Push>(&request)) {
      return wire::Pushed{push->iteration, below(2) == 0, below(2) == 0};
    }
    if (const auto* targets = std::get_if<wire::Targets>(&request)) {
      return wire::TargetsReply{targets->iteration, {0, 1}};
    }
    if (const auto* collect = std::get_if<wire::Collect>(&request)) {
      return wire::CollectReply{collect->iteration, {{0, 1, 0.5}, {1, 1, 0.5}}};
    }
    if (std::holds_alternative<wire::Explain>(request)) {
      Explanation explanation;
      explanation.rule = "because";
      return explanation;
    }
    if (std::holds_alternative<wire::MembersRequest>(request)) {
      wire::MembersReply reply;
      reply.members.resize(below(3));
      reply.next_rank = below(4) == 0 ? iteration() : -1;
      reply.version = below(4);
      return reply;
    }
    return wire::Ok{};
  }

  wire::Body any_body() {
    switch (below(8)) {
      case 0:
        return wire::Ok{};
      case 1:
        return wire::Granted{iteration(), static_cast<std::uint32_t>(below(64)), iteration(),
                             below(4)};
      case 2:
        return wire::Pushed{iteration(), below(2) == 0, below(2) == 0};
      case 3:
        return wire::Joined{ref(), iteration(), "bsp", 1, false, false, 0};
      case 4:
        return wire::TargetsReply{iteration(), {}};
      case 5:
        return wire::CollectReply{iteration(), {}};
      default: {
        constexpr Status kStatuses[] = {
            Status::kOk,          Status::kTimeout,   Status::kShutdown, Status::kFenced,
            Status::kStore,       Status::kRankTaken, Status::kProtocol, Status::kInternal,
            Status::kUnreachable, Status::kCancelled, Status::kAuth,     Status::kPolicyMismatch};
        return wire::Error{kStatuses[below(12)], below(4) == 0 ? "" : "because"};
      }
    }
  }

  void notify() {
    switch (below(7)) {
      case 0:
        return say({0, wire::StopNotice{ref(), "enough"}});
      case 1:
        return say({0, wire::FencedNotice{ref(), "lost"}});
      case 2:
        return say({0, wire::ResyncNotice{ref(), iteration()}});
      case 3:
        return say({0, wire::ShutdownNotice{"maintenance"}});
      case 4:
        return say({0, wire::MembersNotice{ref(), below(8)}});
      case 5:
        if (below(2) == 0) {
          return say({0, wire::StragglerNotice{ref(), 2, "w", "h", below(2) == 0, 2.5, 7, ""}});
        }
        return say({0, wire::PlanNotice{ref(), iteration(), iteration()}});
      default:
        return say({below(2), wire::HeartbeatAck{}});
    }
  }

  // A payload that is whatever comes next, with the length that it has, or bytes without one.
  void say_anything() {
    const bool framed = below(4) != 0;
    const std::size_t wanted = below(256);
    const auto piece = input_.first(std::min(wanted, input_.size()));
    input_ = input_.subspan(piece.size());
    std::vector<std::uint8_t> bytes;
    if (framed) bytes = {static_cast<std::uint8_t>(piece.size()), 0, 0, 0};
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    say(bytes);
  }

  std::span<const std::uint8_t> input_;
  client::TimeUs now_ = 1'000'000;
  client::Session session_;
  std::uint64_t number_ = 0;
  bool connected_ = false;
  wire::FrameSplitter splitter_;
  std::deque<wire::Message> requests_;
  std::set<client::OpId> open_;
  client::OpId next_op_ = 1;
  std::size_t joins_ = 0;
  std::vector<client::WorkerId> workers_;
  std::map<client::WorkerId, std::int64_t> iterations_;
  std::map<client::OpId, std::shared_ptr<client::WorkerSignals>> joining_;
  std::map<client::WorkerId, std::shared_ptr<client::WorkerSignals>> signals_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  World({data, size}).run();
  return 0;
}
