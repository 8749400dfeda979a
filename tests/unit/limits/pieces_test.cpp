// The longest pieces of the loop's work, each of them at the limit that it grows with. What they do
// is checked wherever these run; how long they take, against the table of limits, only where
// SYNCD_TIMED_PIECES is set (`ctest -L bench` sets it): a machine that others use as well has no
// say about that.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "daemon/core/policies/registry.h"
#include "daemon/core/topology/graph_spec.h"
#include "daemon/edge/net/admission.h"
#include "daemon/edge/server/keep_memory.h"
#include "daemon/edge/server/limits_table.h"
#include "tests/unit/limits/limits_world.h"

namespace syncd::server {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsFullSize = false;
#else
constexpr bool kIsFullSize = true;
#endif
constexpr std::uint32_t kWorkers = kIsFullSize ? limits::kWorkersPerJobDefault : 500;

bool is_timed() {
  return std::getenv("SYNCD_TIMED_PIECES") != nullptr;
}

const PieceRow& row_of(std::string_view what) {
  return *std::find_if(kPieceTable.begin(), kPieceTable.end(),
                       [&](const PieceRow& row) { return row.what == what; });
}

class Pieces : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { keep_freed_memory(); }  // as the daemon does
  // The fastest of some tries: each one is made ready, and then timed.
  template <class Ready, class Piece>
  void run_piece(const char* what, Ready ready, Piece piece) {
    std::int64_t best_ns = INT64_MAX;
    // Enough that one of them is disturbed by nobody who shares the core's caches.
    const int tries = is_timed() ? 5 : 1;
    for (int i = 0; i < tries; ++i) {
      ready();
      const std::int64_t begun_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
      piece();
      best_ns = std::min(best_ns, clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun_ns);
    }
    const auto claimed_ns = static_cast<std::int64_t>(row_of(what).ns());
    std::printf("%-32s %7.2f ms, the table says %5.2f\n", what, static_cast<double>(best_ns) / 1e6,
                static_cast<double>(claimed_ns) / 1e6);
    if (is_timed()) {
      EXPECT_LE(best_ns, claimed_ns) << what;
    }
  }
  // A job whose workers wait in their first begin, but for the last one.
  void make_ready(const std::string& policy, std::uint32_t count = kWorkers) {
    world_ = std::make_unique<LimitsWorld>();
    wire::Join join;
    join.host = "a host";
    join.notices = wire::kNoticeMembers | wire::kNoticePlan;
    workers_ = world_->join("job", policy, count, join);
    ASSERT_EQ(workers_.size(), count);
    for (Rank rank = 0; rank + 1 < count; ++rank) ask(rank, wire::Begin{workers_[rank], 0});
    world_->settle();
  }
  // And then all but the last one in the second, after their pushes.
  void make_ready_for_barrier(const std::string& policy) {
    make_ready(policy);
    const Rank last = kWorkers - 1;
    ask(last, wire::Begin{workers_[last], 0});
    world_->settle();
    for (Rank rank = 0; rank < last; ++rank) {
      ask(rank, wire::Push{workers_[rank], 0, {}, 1, 1});
      ask(rank, wire::Begin{workers_[rank], 1});
      if (rank % 1'000 == 0) world_->settle();
    }
    world_->settle();
  }
  void ask(Rank rank, wire::Body body) {
    world_->ask(LimitsWorld::connection_of(rank), std::move(body));
  }

  std::unique_ptr<LimitsWorld> world_;
  std::vector<wire::WorkerRef> workers_;
};

TEST_F(Pieces, StartsOfAJob) {
  for (const char* policy : {"bsp", "dssp:3-15", "naive_wait:5+specsync+ssp:3", "hop:root_expander",
                             "notify_ack:ring"}) {
    run_piece(
        "a job's start", [&] { make_ready(policy); },
        [&] {
          ask(kWorkers - 1, wire::Begin{workers_.back(), 0});
        });
    EXPECT_EQ(world_->core().engine().stats().grants,
              traits_or_none(policy).grant_delay_us > 0 ? 0 : kWorkers);
  }
}

TEST_F(Pieces, Barriers) {
  for (const char* policy : {"bsp", "ssp:0"}) {
    run_piece(
        "a barrier", [&] { make_ready_for_barrier(policy); },
        [&] {
          ask(kWorkers - 1, wire::Push{workers_.back(), 0, {}, 1, 1});
        });
    EXPECT_EQ(world_->core().engine().stats().grants, 2 * kWorkers - 1) << policy;
  }
}

// What a barrier has left for the next turn.
TEST_F(Pieces, SlicesOfARelease) {
  run_piece(
      "a slice of a release",
      [&] {
        make_ready_for_barrier("bsp");
        ask(kWorkers - 1, wire::Push{workers_.back(), 0, {}, 1, 1});
      },
      [&] { world_->core().fire_timers(); });
}

TEST_F(Pieces, EndsOfAJob) {
  run_piece(
      "a job's end, with its snapshot", [&] { make_ready_for_barrier("bsp"); },
      [&] {
        ask(0, wire::StopJobRequest{"job", ""});
      });
}

TEST_F(Pieces, ChangesOfAPolicy) {
  for (const char* policy : {"ssp:3", "elastic_bsp:150", "specsync+asp"}) {
    run_piece(
        "a policy's change", [&] { make_ready_for_barrier("bsp"); },
        [&] {
          ask(0, wire::SetPolicyRequest{"job", policy});
        });
  }
}

TEST_F(Pieces, PagesOfWorkers) {
  // Each of half of them waits for the others.
  const auto half = [this] {
    make_ready("bsp");
    ask(kWorkers - 1, wire::Begin{workers_.back(), 0});
    for (Rank rank = 0; rank < kWorkers / 2; ++rank) {
      ask(rank, wire::Push{workers_[rank], 0, {}, 1, 1});
      ask(rank, wire::Begin{workers_[rank], 1});
    }
    world_->settle();
  };
  run_piece("a page of workers", half, [&] { ask(0, wire::WorkersRequest{"job", 0, true}); });
  run_piece("a page of workers", half, [&] { ask(0, wire::MembersRequest{workers_.front(), 0}); });
}

TEST_F(Pieces, ConnectionsOfManyWorkersThatEnd) {
  const auto ready = [this] {
    world_ = std::make_unique<LimitsWorld>();
    for (std::uint32_t i = 0; i < 2 * limits::kWorkersAtOnce; ++i) {
      wire::Join join;
      join.job = "job";
      join.name = "w" + std::to_string(i);
      world_->ask(1, join);
    }
    world_->settle();
  };
  run_piece("a connection's end", ready, [&] { world_->core().on_closed(1, "gone"); });
  EXPECT_EQ(world_->core().next_deadline(), 0) << "a part of them";
}

// Each of them has a graph of all workers made anew.
TEST_F(Pieces, LossesAtOneTime) {
  run_piece(
      "losses at one time",
      [&] {
        make_ready("hop:root_expander");
        ask(kWorkers - 1, wire::Begin{workers_.back(), 0});
        for (Rank rank = 0; rank < kWorkers; rank += 100) {
          world_->core().on_closed(LimitsWorld::connection_of(rank), "gone");
        }
        world_->settle();
        world_->pass(Micros{3600} * 1'000'000);
        world_->run_clock();
      },
      [&] { world_->core().fire_timers(); });
}

TEST_F(Pieces, AnswersOfACommit) {
  FakeStore store;
  wire::Encoder encoder;
  std::vector<std::uint8_t> out;
  std::size_t sent = 0;
  CommitGate gate(store, [&](const Caller& to, wire::Body&& answer) {
    out.clear();
    encoder.append(to.request, answer, out);
    ++sent;
  });
  store.callback = [&](const store::CommitReport& report) { gate.report(report); };
  run_piece(
      "a commit's answers",
      [&] {
        while (gate.must_settle_again()) gate.settle();
        sent = 0;
        Effects effects;
        effects.records.emplace_back();
        gate.take(effects);
        for (std::size_t i = 0; i < 3 * CommitGate::kReleasedAtOnce; ++i) {
          gate.pass({{1, i}, true, wire::Pushed{}});
        }
        gate.submit(effects);
        store.commit_all();
      },
      [&] { gate.settle(); });
  EXPECT_EQ(sent, CommitGate::kReleasedAtOnce);
}

TEST_F(Pieces, ListsOfJobs) {
  const auto ready = [this] {
    if (world_) return world_->settle();
    world_ = std::make_unique<LimitsWorld>();
    for (std::uint32_t i = 0; i < (kIsFullSize ? limits::kJobsMax : 200); ++i) {
      world_->ask(1, wire::CreateJobRequest{"job" + std::to_string(i), "bsp", 100, 0});
    }
    world_->settle();
  };
  run_piece("a list of jobs", ready, [&] { world_->ask(1, wire::JobsRequest{}); });
  ASSERT_EQ(world_->answers().size(), 1U);

  // And where rules say which jobs somebody may see: none of these.
  net::AdmissionRules rules;
  net::Identity identity;
  for (int i = 0; i < 10; ++i) {
    const std::string number = std::to_string(i);
    identity.names.push_back("cert:" + number + ".example");
    rules.allow.push_back({"cert:" + number + ".*", "team-" + number + "-*"});
  }
  std::string error;
  const auto admission = net::Admission::make(std::move(rules), error);
  ASSERT_NE(admission, nullptr) << error;
  run_piece("a list of jobs", ready, [&] {
    const auto visible = [patterns = admission->jobs_of(identity)](const std::string& job) {
      return net::Admission::is_one_of(patterns, job);
    };
    EXPECT_THAT(world_->core().engine().jobs(visible).jobs, ::testing::IsEmpty());
  });
}

TEST_F(Pieces, GraphsMadeAnew) {
  for (const char* policy : {"hop:complete,max_ig=4", "notify_ack:complete"}) {
    const auto ready = [&] { make_ready(policy, kIsFullSize ? kEdgesPerWorkerMax : 16); };
    run_piece("a graph made anew", ready, [&] {
      ask(static_cast<Rank>(workers_.size() - 1), wire::Begin{workers_.back(), 0});
    });
    const auto running = [&] {
      ready();
      ask(static_cast<Rank>(workers_.size() - 1), wire::Begin{workers_.back(), 0});
      world_->settle();
    };
    run_piece("a graph made anew", running, [&] {
      ask(0, wire::ManageWorkerRequest{"job", "1", wire::WorkerAction::kKick, "", 0});
    });
    // One worker more than the graph may have.
    run_piece(
        "a graph made anew", [&] { world_ = std::make_unique<LimitsWorld>(); },
        [&] {
          world_->ask(1, wire::CreateJobRequest{"job", policy, kEdgesPerWorkerMax + 1, 0});
        });
    ASSERT_EQ(world_->answers().size(), 1U);
    const auto* error = std::get_if<wire::Error>(&world_->answers().front());
    ASSERT_NE(error, nullptr);
    EXPECT_NE(error->message.find("limits.graph_edges_max"), std::string::npos) << error->message;
  }
}

TEST_F(Pieces, GraphsOfAFile) {
  std::string text;
  for (std::uint32_t i = 0;
       text.size() + 12 < topology::graph_file_bytes_max(limits::kGraphEdgesDefault); ++i) {
    text += std::to_string(i / 2) + " " + std::to_string((i / 2 + 1 + i % 2) % 40'000) + "\n";
  }
  std::optional<topology::Graph> graph;
  std::string error;
  run_piece(
      "a graph's file", [] {}, [&] { graph = topology::parse_graph_text(text, "graph", error); });
  EXPECT_TRUE(graph) << error;
}

}  // namespace
}  // namespace syncd::server
