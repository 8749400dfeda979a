// What one worker did lately, in shared memory: its latest spans of waiting, computing and so on,
// in a ring of fixed size, and how stale its grants were, in a histogram of fixed size. One process
// writes; others may read at any time and see whole entries only. Also pure functions on both.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace syncd::trainer {

enum class SpanKind : std::uint8_t {
  kWaiting = 0,     // in begin, targets or collect
  kComputing = 1,   // a minibatch
  kWasted = 2,      // a minibatch that was thrown away (a restart, a late update)
  kExchanging = 3,  // parameters: pulled, applied, sent to neighbours, reduced
  kPushing = 4,     // in push
};
inline constexpr std::size_t kSpanKinds = 5;

// "waiting", "computing", "wasted", "exchanging", "pushing".
std::string_view span_kind_name(SpanKind kind);

enum SpanFlags : std::uint8_t {
  kSpanBarrier = 1,  // ended with a grant after a global synchronization
  kSpanLate = 2,     // a push whose update came too late
  kSpanSkip = 4,     // ended with a grant that jumped over iterations
};

// Moments in microseconds of the machine's monotonic clock.
struct Span {
  std::int64_t start_us = 0;
  std::int64_t end_us = 0;
  std::int64_t iteration = 0;
  SpanKind kind = SpanKind::kWaiting;
  std::uint8_t flags = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

// The latest kCapacity spans of one worker. O(1) to add, without a lock or a system call. A writer
// that dies in the middle leaves all entries but the one that it was writing.
class SpanRing {
 public:
  static constexpr std::size_t kCapacity = 512;

  void add(const Span& span);

  // Oldest first. Any thread of any process; entries that are overwritten meanwhile are left out.
  std::vector<Span> read() const;

  // True once older spans have been overwritten.
  bool is_full() const { return written_.load(std::memory_order_relaxed) > kCapacity; }

 private:
  struct Entry {
    std::atomic<std::int64_t> start_us;
    std::atomic<std::int64_t> end_us;
    std::atomic<std::int64_t> iteration;
    std::atomic<std::uint32_t> kind_and_flags;
  };
  std::atomic<std::uint64_t> written_;
  std::array<Entry, kCapacity> entries_;
};

// A range of staleness values and how many grants fell into it.
struct StalenessBin {
  std::int64_t low = 0;
  std::int64_t high = 0;  // inclusive
  std::int64_t grants = 0;

  friend bool operator==(const StalenessBin&, const StalenessBin&) = default;
};

// Counts of staleness at the grants: exact below 128, above that in bins a sixteenth of an octave
// wide. Values past 2^31 count in the last bin.
class StalenessHistogram {
 public:
  static constexpr std::int64_t kExact = 128;
  static constexpr std::size_t kBinsPerOctave = 16;
  static constexpr std::size_t kBins = kExact + 24 * kBinsPerOctave;

  // In which bin a value counts (negative ones with 0), and the smallest value of a bin.
  static std::size_t bin_of(std::int64_t staleness);
  static std::int64_t low_of(std::size_t bin);

  void add(std::int64_t staleness) {
    counts_[bin_of(staleness)].fetch_add(1, std::memory_order_relaxed);
  }
  std::int64_t count(std::size_t bin) const { return counts_[bin].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<std::int64_t>, kBins> counts_;
};

// The bins of all histograms together that hold something, ascending.
std::vector<StalenessBin> sum_of(const std::vector<const StalenessHistogram*>& histograms);

}  // namespace syncd::trainer
