// Random faults between a session and a model daemon: connections cut at any byte, refused, left
// silent, evictions, restarts, shutdowns, callers whose patience ends at any moment. Whatever
// happens, every operation completes exactly once, every iteration counts at most once, and every
// confirmed one counts. A failure prints its seed.
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "libclient/session.h"
#include "model_daemon.h"

namespace syncd::client {
namespace {

constexpr std::int64_t kIterations = 12;
constexpr int kChaosSteps = 3000;  // after these nothing goes wrong any more
constexpr int kStepsMax = 60'000;

// One worker's training loop as a state machine over operations.
struct Trainer {
  enum class Phase { kJoin, kBegin, kPush, kLeave, kDone };
  std::string name;
  Phase phase = Phase::kJoin;
  OpId op = 0;  // 0: nothing under way
  WorkerId worker = kNoWorker;
  std::int64_t iteration = 0;
  std::vector<std::int64_t> confirmed;
};

class Chaos {
 public:
  explicit Chaos(std::uint64_t seed)
      : random_(seed),
        daemon_(static_cast<std::int64_t>(seed % 3)),
        session_(options(seed), now_),
        trainers_(1 + seed % 4) {
    for (std::size_t i = 0; i < trainers_.size(); ++i) trainers_[i].name = "w" + std::to_string(i);
  }

  void run() {
    for (step_ = 0; step_ < kStepsMax && !finished(); ++step_) {
      act();
      follow_wish();
      collect();
      if (testing::Test::HasFailure()) return;
    }
    ASSERT_TRUE(finished()) << "operations are left that never complete";
    check_counts();
  }

 private:
  static SessionOptions options(std::uint64_t seed) {
    SessionOptions options;
    options.link.endpoints = {"a", "b"};
    options.link.seed = seed;
    // Sometimes so short that callers hear of it.
    options.reconnect_timeout_us = seed % 2 == 0 ? 60'000'000 : 700'000;
    return options;
  }

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  bool chance(std::uint64_t one_in) { return below(one_in) == 0; }
  bool chaotic() const { return step_ < kChaosSteps; }
  bool finished() const {
    for (const Trainer& trainer : trainers_) {
      if (trainer.phase != Trainer::Phase::kDone) return false;
    }
    return true;
  }

  // ---- One thing happens.

  void act() {
    const std::uint64_t dice = below(16);
    if (dice < 5) {
      deliver(to_daemon_, true);
    } else if (dice < 10) {
      deliver(to_session_, false);
    } else if (dice < 13) {
      call(trainers_[below(trainers_.size())]);
    } else if (dice < 15) {
      pass_time();
    } else if (chaotic()) {
      misfortune();
    } else {
      daemon_.shutting_down = false;
    }
  }

  void deliver(std::deque<std::uint8_t>& pipe, bool to_daemon) {
    if (!linked_) {
      if (session_.wish().up) settle_connect();
      return;
    }
    if (pipe.empty()) return;
    const std::size_t size = 1 + below(std::min<std::size_t>(pipe.size(), 1 + below(600)));
    const std::vector<std::uint8_t> bytes(pipe.begin(),
                                          pipe.begin() + static_cast<std::ptrdiff_t>(size));
    pipe.erase(pipe.begin(), pipe.begin() + static_cast<std::ptrdiff_t>(size));
    if (to_daemon) {
      daemon_.feed(bytes);
    } else {
      heard_ = true;
      session_.on_bytes(number_, bytes, now_);
    }
  }

  void settle_connect() {
    if (chaotic() && chance(3)) {
      session_.on_disconnected(number_, "connection refused", now_);
      return;
    }
    linked_ = true;
    heard_ = false;
    daemon_.connected();
    session_.on_connected(number_, now_);
  }

  void pass_time() {
    const TimeUs next = session_.next_deadline();
    TimeUs target = now_ + static_cast<TimeUs>(below(20'000));
    // Once nothing is in flight, waiting is all there is to do.
    const bool idle = to_daemon_.empty() && to_session_.empty();
    if ((idle || chance(20)) && next != kNever) target = std::max(target, next);
    now_ = target;
    if (now_ >= next) session_.on_time(now_);
  }

  void misfortune() {
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        return cut();
      case 3:
        if (!linked_) return;
        to_daemon_.clear();  // what it had not read died with it
        daemon_.restart();
        return cut();
      case 4:
      case 5:
        return daemon_.evict(trainers_[below(trainers_.size())].name);
      case 6:
        // Only before any whole frame: in the middle of one it would forge a message that verifies.
        if (linked_ && !heard_) {
          const std::uint8_t garbage[] = {0, 0, 0, 0};
          session_.on_bytes(number_, garbage, now_);
        }
        return;
      case 7:
        to_session_.clear();  // a peer that goes silent in the middle of a frame
        return cut();
      case 8:
        daemon_.shutting_down = !daemon_.shutting_down;
        return;
      case 9:
        return notify_shutdown();
      default:
        return;
    }
  }

  void cut() {
    if (linked_) session_.on_disconnected(number_, "connection reset by peer", now_);
  }

  void notify_shutdown() {
    if (!linked_ || !session_.connected()) return;
    wire::Encoder encoder;
    encoder.append({0, wire::ShutdownNotice{"restart"}}, daemon_.output);
  }

  // The transport: what the session wishes, and bytes in both directions. A connection that is
  // given up takes with it what was under way, except that the daemon may have read any part of it.
  void follow_wish() {
    collect_bytes();
    if (session_.wish().number != number_) {
      if (linked_) {
        const std::size_t size = below(to_daemon_.size() + 1);
        const std::vector<std::uint8_t> bytes(
            to_daemon_.begin(), to_daemon_.begin() + static_cast<std::ptrdiff_t>(size));
        daemon_.feed(bytes);
        daemon_.disconnected();
      }
      linked_ = false;
      to_daemon_.clear();
      to_session_.clear();
      number_ = session_.wish().number;
    }
    collect_bytes();
  }

  void collect_bytes() {
    if (session_.wish().number == number_ && linked_) {
      to_daemon_.insert(to_daemon_.end(), session_.output().begin(), session_.output().end());
      session_.output().clear();
    }
    to_session_.insert(to_session_.end(), daemon_.output.begin(), daemon_.output.end());
    daemon_.output.clear();
  }

  // ---- The callers.

  Timeout patience() {
    if (!chaotic() || chance(2)) return {};
    return Timeout::after(static_cast<TimeUs>(chance(3) ? below(1000) : below(3'000'000)), now_);
  }

  void call(Trainer& trainer) {
    if (trainer.op != 0 || trainer.phase == Trainer::Phase::kDone) return;
    trainer.op = next_op_++;
    pending_.insert(trainer.op);
    const Ask ask{trainer.op, patience(), now_};
    JoinRequest request;
    switch (trainer.phase) {
      case Trainer::Phase::kJoin:
        request.job = "j";
        request.name = trainer.name;
        request.host = "h";
        return session_.join(ask, std::move(request));
      case Trainer::Phase::kBegin:
        return session_.begin(ask, trainer.worker);
      case Trainer::Phase::kPush:
        return session_.push(ask, trainer.worker, trainer.iteration, {});
      case Trainer::Phase::kLeave:
        return session_.leave(ask, trainer.worker);
      case Trainer::Phase::kDone:
        return;
    }
  }

  void collect() {
    for (Completion& completion : session_.completions()) {
      ASSERT_EQ(pending_.erase(completion.op), 1U) << "completed twice, or never asked for";
      for (Trainer& trainer : trainers_) {
        if (trainer.op == completion.op) ended(trainer, completion);
      }
    }
    session_.completions().clear();
  }

  void ended(Trainer& trainer, const Completion& completion) {
    trainer.op = 0;
    if (completion.status == Status::kTimeout || completion.status == Status::kUnreachable) return;
    // The only other failure that the rules allow: thrown out twice with nothing between.
    if (completion.status == Status::kFenced) {
      EXPECT_GE(daemon_.members().at(trainer.name).evictions, 2) << completion.message;
      EXPECT_EQ(completion.message.find("replaced"), std::string::npos) << "nobody has its name";
      trainer.phase = Trainer::Phase::kJoin;
      trainer.name += "'";
      trainer.confirmed.clear();
      return;
    }
    ASSERT_EQ(completion.status, Status::kOk) << completion.message;
    static constexpr std::size_t kResult[] = {1, 2, 3, 0, 0};  // by phase, in Completion's variant
    ASSERT_EQ(completion.result.index(), kResult[static_cast<int>(trainer.phase)]);
    switch (trainer.phase) {
      case Trainer::Phase::kJoin:
        trainer.worker = std::get<JoinResult>(completion.result).worker;
        trainer.phase = Trainer::Phase::kBegin;
        return;
      case Trainer::Phase::kBegin:
        trainer.iteration = std::get<Step>(completion.result).iteration;
        trainer.phase =
            trainer.iteration >= kIterations ? Trainer::Phase::kLeave : Trainer::Phase::kPush;
        return;
      case Trainer::Phase::kPush:
        trainer.confirmed.push_back(trainer.iteration);
        trainer.phase = Trainer::Phase::kBegin;
        return;
      case Trainer::Phase::kLeave:
        session_.release(trainer.worker, now_);
        trainer.phase = Trainer::Phase::kDone;
        return;
      case Trainer::Phase::kDone:
        FAIL();
    }
  }

  void check_counts() {
    for (const Trainer& trainer : trainers_) {
      const std::vector<std::int64_t>& applied = daemon_.members().at(trainer.name).applied;
      EXPECT_TRUE(std::is_sorted(applied.begin(), applied.end()));
      EXPECT_EQ(std::adjacent_find(applied.begin(), applied.end()), applied.end());
      // A trainer goes on only after its push is confirmed, so that both lists are one.
      EXPECT_EQ(trainer.confirmed, applied);
      EXPECT_FALSE(daemon_.members().at(trainer.name).member) << "it has left";
    }
  }

  std::mt19937_64 random_;
  TimeUs now_ = 1'000'000;
  ModelDaemon daemon_;
  Session session_;
  std::vector<Trainer> trainers_;
  std::set<OpId> pending_;
  OpId next_op_ = 1;
  int step_ = 0;
  std::uint64_t number_ = 0;
  bool linked_ = false;
  bool heard_ = false;  // the session has read from this connection
  std::deque<std::uint8_t> to_daemon_;
  std::deque<std::uint8_t> to_session_;
};

TEST(SessionChaos, EveryOperationEndsOnceAndEveryConfirmedPushCountsOnce) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Chaos chaos(seed);
    chaos.run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace syncd::client
