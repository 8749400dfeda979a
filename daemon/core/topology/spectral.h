// How fast information spreads over a graph, in the two conventions that the papers use. Pure
// functions; any thread.
#pragma once

#include <optional>

#include "daemon/core/topology/graph.h"

namespace syncd::topology {

// The figures need a dense matrix and O(n^3) operations: tens of seconds here, hours not far above.
inline constexpr std::size_t kSpectralNodesMax = 2000;

// 1 - sigma_2(P), the second largest singular value of P = A / in-degree with self-loops: 1 when
// one reduce mixes everything, 0 when something is never mixed (ASAP, section 3.2). 1 for a single
// node. Precondition: 1 <= n <= kSpectralNodesMax. O(n^3).
double spectral_gap(const Graph& graph);

// lambda_1 - lambda_2 of the random walk that goes to an in-neighbour drawn evenly and never stays,
// eigenvalues ordered by their real parts: the convention that gives the figures of Hop, figure 21
// (0.6667 for its ring-based graph of 8). Empty for a single node, and in the rare case that the
// eigenvalues of a directed graph do not converge. Precondition: 1 <= n <= kSpectralNodesMax.
// O(n^3).
std::optional<double> eigen_gap_no_self_loop(const Graph& graph);

}  // namespace syncd::topology
