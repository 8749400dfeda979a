// Spans and staleness in shared memory: see span_ring.h. No thread of its own.
#include "reference_trainer/run/span_ring.h"

#include <algorithm>
#include <bit>

namespace syncd::trainer {
namespace {

constexpr int kExactBits = 7;       // log2 of StalenessHistogram::kExact
constexpr int kOctaveBits = 4;      // log2 of kBinsPerOctave
constexpr unsigned kFlagShift = 8;  // flags above the kind

}  // namespace

std::string_view span_kind_name(SpanKind kind) {
  constexpr std::array<std::string_view, kSpanKinds> kNames{"waiting", "computing", "wasted",
                                                            "exchanging", "pushing"};
  return kNames.at(static_cast<std::size_t>(kind));
}

// A sequence lock whose sequence is the number of spans. Every field is stored with release and
// loaded with acquire: a reader that saw a part of a new entry then sees at least the number that
// was there when the writer began with it, and by that number drops the entry.
void SpanRing::add(const Span& span) {
  constexpr auto kRelease = std::memory_order_release;
  const std::uint64_t written = written_.load(std::memory_order_relaxed);
  Entry& entry = entries_[written % kCapacity];
  entry.start_us.store(span.start_us, kRelease);
  entry.end_us.store(span.end_us, kRelease);
  entry.iteration.store(span.iteration, kRelease);
  entry.kind_and_flags.store(
      static_cast<std::uint32_t>(span.kind) | static_cast<std::uint32_t>(span.flags) << kFlagShift,
      kRelease);
  written_.store(written + 1, kRelease);
}

std::vector<Span> SpanRing::read() const {
  constexpr auto kAcquire = std::memory_order_acquire;
  const std::uint64_t end = written_.load(kAcquire);
  const std::uint64_t begin = end > kCapacity ? end - kCapacity : 0;
  std::vector<Span> spans;
  spans.reserve(end - begin);
  for (std::uint64_t i = begin; i < end; ++i) {
    const Entry& entry = entries_[i % kCapacity];
    const std::uint32_t bits = entry.kind_and_flags.load(kAcquire);
    spans.push_back(
        {.start_us = entry.start_us.load(kAcquire),
         .end_us = entry.end_us.load(kAcquire),
         .iteration = entry.iteration.load(kAcquire),
         .kind = static_cast<SpanKind>(std::min<std::uint32_t>(bits & 0xff, kSpanKinds - 1)),
         .flags = static_cast<std::uint8_t>(bits >> kFlagShift)});
  }
  // The entry after the newest one may be half written just now: with it, one less is whole.
  const std::uint64_t now = written_.load(std::memory_order_relaxed);
  const std::uint64_t first_whole = now + 1 > kCapacity ? now + 1 - kCapacity : 0;
  if (first_whole > begin) {
    const std::uint64_t stale = std::min<std::uint64_t>(first_whole - begin, spans.size());
    spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(stale));
  }
  return spans;
}

std::size_t StalenessHistogram::bin_of(std::int64_t staleness) {
  if (staleness < kExact) return static_cast<std::size_t>(std::max<std::int64_t>(0, staleness));
  const auto value = static_cast<std::uint64_t>(staleness);
  const int octave = std::bit_width(value) - 1;
  const auto step = static_cast<std::size_t>(value >> (octave - kOctaveBits)) % kBinsPerOctave;
  const std::size_t bin =
      kExact + static_cast<std::size_t>(octave - kExactBits) * kBinsPerOctave + step;
  return std::min(bin, kBins - 1);
}

std::int64_t StalenessHistogram::low_of(std::size_t bin) {
  if (bin < static_cast<std::size_t>(kExact)) return static_cast<std::int64_t>(bin);
  const std::size_t above = bin - kExact;
  const auto octave = static_cast<int>(above / kBinsPerOctave) + kExactBits;
  const auto step = static_cast<std::int64_t>(above % kBinsPerOctave);
  return (static_cast<std::int64_t>(kBinsPerOctave) + step) << (octave - kOctaveBits);
}

std::vector<StalenessBin> sum_of(const std::vector<const StalenessHistogram*>& histograms) {
  std::vector<StalenessBin> bins;
  for (std::size_t bin = 0; bin < StalenessHistogram::kBins; ++bin) {
    std::int64_t grants = 0;
    for (const StalenessHistogram* histogram : histograms) grants += histogram->count(bin);
    if (grants == 0) continue;
    bins.push_back({.low = StalenessHistogram::low_of(bin),
                    .high = StalenessHistogram::low_of(bin + 1) - 1,
                    .grants = grants});
  }
  return bins;
}

}  // namespace syncd::trainer
