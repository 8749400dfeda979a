// What syncbench counts and measures. Pure; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::bench {

// What is asked beside the iterations, as people and programs do of a daemon at work. The first
// three are asked by a worker of itself, the others by an operator of the job.
enum class Question : std::uint8_t {
  kExplain,
  kMembers,
  kPhase,
  kStatus,
  kJobs,
  kWorkers,
  kHistory,
};
inline constexpr std::array<const char*, 7> kQuestionNames = {
    "explain", "members", "phase", "status", "jobs", "workers", "history"};
inline bool is_for_operator(Question question) {
  return question >= Question::kStatus;
}
// "explain,history". False: there is another word in it, which `error` names.
bool parse_questions(std::string_view text, std::vector<Question>& questions, std::string& error);

// Spans in nanoseconds, kept as counts in classes whose width is 1/64 of their values: a percentile
// is at most 1.6 % too high, the maximum is exact, and memory does not grow.
class Spans {
 public:
  void add(std::int64_t ns);
  std::uint64_t count() const { return count_; }
  // The value at or below which `share` (0 to 1) of the spans lie. 0 if there are none.
  std::int64_t percentile(double share) const;
  std::int64_t max() const { return max_; }

 private:
  static constexpr std::size_t kFine = 64;
  static std::size_t class_of(std::int64_t ns);
  static std::int64_t top_of(std::size_t index);

  std::array<std::uint64_t, kFine * 60> counts_{};
  std::uint64_t count_ = 0;
  std::int64_t max_ = 0;
};

// From the last push of an iteration to the last grant of the next one, if everybody takes part in
// all of them.
class BarrierTimes {
 public:
  explicit BarrierTimes(std::size_t workers) : workers_(workers) {}
  void pushing(std::int64_t iteration, std::int64_t now_ns);
  void granted(std::int64_t iteration, std::int64_t now_ns);
  const Spans& spans() const { return spans_; }

 private:
  struct Barrier {
    std::size_t pushes = 0;
    std::int64_t last_push_ns = 0;
    std::size_t grants = 0;
  };
  const std::size_t workers_;
  std::map<std::int64_t, Barrier> open_;  // by the iteration that ends there
  Spans spans_;
};

struct Figures {
  std::string job;
  std::string policy;
  bool durable = false;
  std::size_t workers = 0;
  std::size_t connections = 0;
  double join_s = 0;  // from the first join to the last one's answer
  // While all workers iterated: none was joining or leaving.
  double seconds = 0;
  std::uint64_t iterations = 0;  // pushes that were acknowledged
  std::uint64_t requests = 0;    // those below that were answered
  Spans begin;                   // all grants; what the policy makes wait is in it
  Spans free_begin;              // those that nothing was to wait for
  Spans targets;                 // this and the next two: of decentralized policies
  Spans collect;
  Spans consumed;
  Spans push;
  std::array<Spans, kQuestionNames.size()> asked;  // by question
  Spans barrier;
  // In all, from the joins to the leaves.
  std::uint64_t pushes = 0;
  std::uint64_t late = 0;  // of them, answered LATE
  // Of the daemon, over the same time as `seconds` and a little more; -1: not known.
  double server_cpu_s = -1;
  std::uint64_t frames_in = 0;
  std::uint64_t frames_out = 0;
  std::uint64_t counted_pushes = 0;  // by the daemon for this job
};

}  // namespace syncd::bench
