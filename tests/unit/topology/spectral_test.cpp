#include "daemon/core/topology/spectral.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/unit/topology/support.h"

namespace syncd::topology {
namespace {

double gap(const std::string& name, std::size_t nodes) {
  return spectral_gap(make(name, nodes));
}

// ASAP, figure 3 and section 3.3: all-reduce 1.00; the chain 0.1 and 0.002 as printed there, 0.008
// in its section 6.
TEST(SpectralGap, KnownValues) {
  EXPECT_NEAR(gap("complete", 6), 1, 1e-9);
  EXPECT_NEAR(gap("complete", 25), 1, 1e-9);
  EXPECT_NEAR(gap("ring_directed", 6), 0.1340, 5e-5);
  EXPECT_NEAR(gap("ring_directed", 25), 0.0079, 5e-5);
  EXPECT_NEAR(gap("root_expander", 6), 0.3333, 5e-5);
  EXPECT_NEAR(gap("root_expander", 25), 0.1419, 5e-5);
}

// P of the directed ring is circulant: its singular values are |1 + e^(2 pi i k / n)| / 2.
TEST(SpectralGap, OfADirectedRingInClosedForm) {
  for (std::size_t n = 3; n <= 60; n += 7) {
    EXPECT_NEAR(gap("ring_directed", n), 1 - std::cos(std::numbers::pi / static_cast<double>(n)),
                1e-9);
  }
}

TEST(SpectralGap, IsZeroWhereTheGraphFallsApart) {
  EXPECT_NEAR(gap("halton", 6), 0, 1e-9);
  EXPECT_GT(gap("halton", 16), 0.01);
}

TEST(SpectralGap, OfOneAndTwoNodes) {
  EXPECT_EQ(spectral_gap(Graph(1, {})), 1);
  EXPECT_NEAR(gap("ring", 2), 1, 1e-9);
  EXPECT_NEAR(spectral_gap(Graph(2, {})), 0, 1e-9);
}

// Hop, figure 21: 8 workers, in (b) and (c) on hosts of 2, 2 and 4.
TEST(EigenGap, OfTheGraphsThatHopPrints) {
  const auto gap_of = [](const char* name) {
    const Graph graph = make(name, 8, {"a", "a", "b", "b", "c", "c", "c", "c"});
    return eigen_gap_no_self_loop(graph).value();
  };
  EXPECT_NEAR(gap_of("ring_based"), 0.6667, 5e-5);
  EXPECT_NEAR(gap_of("clustered"), 0.2682, 5e-5);
  EXPECT_NEAR(gap_of("clustered_links"), 0.2688, 5e-5);
}

// Walks in closed form: complete 1 and -1/(n-1); ring cos(2 pi k/n); the directed ring the same
// real parts, found by the other solver; a star 1, 0 and -1.
TEST(EigenGap, InClosedForm) {
  for (std::size_t n = 3; n <= 40; n += 5) {
    const double second = std::cos(2 * std::numbers::pi / static_cast<double>(n));
    EXPECT_NEAR(eigen_gap_no_self_loop(make("ring", n)).value(), 1 - second, 1e-9);
    EXPECT_NEAR(eigen_gap_no_self_loop(make("ring_directed", n)).value(), 1 - second, 1e-9);
    EXPECT_NEAR(eigen_gap_no_self_loop(make("complete", n)).value(),
                1 + 1 / static_cast<double>(n - 1), 1e-9);
    EXPECT_NEAR(eigen_gap_no_self_loop(make("star", n)).value(), 1, 1e-9);
  }
  EXPECT_NEAR(eigen_gap_no_self_loop(make("ring", 2)).value(), 2, 1e-9);
  EXPECT_EQ(eigen_gap_no_self_loop(Graph(1, {})), std::nullopt);
}

}  // namespace
}  // namespace syncd::topology
