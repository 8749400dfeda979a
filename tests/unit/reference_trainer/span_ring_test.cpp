// The ring of spans and the histogram of staleness, as a worker writes and the parent reads them.
#include "reference_trainer/run/span_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <thread>

namespace syncd::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kCapacity = static_cast<std::int64_t>(SpanRing::kCapacity);

// All of its fields follow from one number, so that a mixture is noticed.
Span numbered(std::int64_t number) {
  return {.start_us = number,
          .end_us = number * 3,
          .iteration = number * 5,
          .kind = static_cast<SpanKind>(number % 5),
          .flags = static_cast<std::uint8_t>(number % 7)};
}

TEST(SpanRing, GivesBackWhatWasAddedOldestFirst) {
  const auto ring = std::make_unique<SpanRing>();
  EXPECT_THAT(ring->read(), IsEmpty());
  ring->add(numbered(1));
  ring->add(numbered(2));
  EXPECT_THAT(ring->read(), ElementsAre(numbered(1), numbered(2)));
  EXPECT_FALSE(ring->is_full());
}

TEST(SpanRing, KeepsTheLatest) {
  const auto ring = std::make_unique<SpanRing>();
  for (std::int64_t i = 0; i < 3 * kCapacity; ++i) ring->add(numbered(i));
  EXPECT_TRUE(ring->is_full());
  const std::vector<Span> spans = ring->read();
  // The oldest entry is the one that would be overwritten next.
  ASSERT_EQ(static_cast<std::int64_t>(spans.size()), kCapacity - 1);
  EXPECT_EQ(spans.front(), numbered(2 * kCapacity + 1));
  EXPECT_EQ(spans.back(), numbered(3 * kCapacity - 1));
}

TEST(SpanRing, AReaderNeverSeesAMixtureOfTwoSpans) {
  const auto ring = std::make_unique<SpanRing>();
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (std::int64_t i = 0; !done; ++i) ring->add(numbered(i));
  });
  for (int reads = 0; reads < 3'000; ++reads) {
    const std::vector<Span> spans = ring->read();
    for (std::size_t i = 0; i < spans.size(); ++i) {
      EXPECT_EQ(spans[i], numbered(spans[i].start_us));
      EXPECT_EQ(spans[i].start_us, spans[0].start_us + static_cast<std::int64_t>(i));
    }
    if (HasFailure()) break;
  }
  done = true;
  writer.join();
}

TEST(StalenessHistogram, BinsFollowEachOtherWithoutGap) {
  for (std::size_t bin = 0; bin + 1 < StalenessHistogram::kBins; ++bin) {
    const std::int64_t low = StalenessHistogram::low_of(bin);
    const std::int64_t next = StalenessHistogram::low_of(bin + 1);
    ASSERT_LT(low, next) << bin;
    ASSERT_EQ(StalenessHistogram::bin_of(low), bin);
    ASSERT_EQ(StalenessHistogram::bin_of(next - 1), bin);
  }
}

TEST(StalenessHistogram, TakesAnyNumber) {
  EXPECT_EQ(StalenessHistogram::bin_of(-5), 0U);
  EXPECT_EQ(StalenessHistogram::bin_of(127), 127U);
  EXPECT_EQ(StalenessHistogram::bin_of(128), 128U);
  EXPECT_EQ(StalenessHistogram::low_of(129), 136);
  EXPECT_EQ(StalenessHistogram::bin_of(std::numeric_limits<std::int64_t>::max()),
            StalenessHistogram::kBins - 1);
}

TEST(StalenessHistogram, SumsUpWorkers) {
  const auto one = std::make_unique<StalenessHistogram>();
  const auto two = std::make_unique<StalenessHistogram>();
  EXPECT_THAT(sum_of({one.get(), two.get()}), IsEmpty());
  one->add(0);
  one->add(3);
  two->add(3);
  two->add(1'000);
  EXPECT_THAT(
      sum_of({one.get(), two.get()}),
      ElementsAre(StalenessBin{0, 0, 1}, StalenessBin{3, 3, 2}, StalenessBin{992, 1023, 1}));
}

}  // namespace
}  // namespace syncd::trainer
