// See spectral.h. The only file that knows Eigen.
#include "daemon/core/topology/spectral.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <functional>

#include "proto/base/check.h"

namespace syncd::topology {
namespace {

double degree(const Graph& graph, Node node) {
  return static_cast<double>(graph.in(node).size());
}

// Symmetric, and similar to the walk's matrix D^-1 A by D^(1/2): the same eigenvalues, found faster
// and more exactly.
std::vector<double> undirected_eigenvalues(const Graph& graph) {
  const auto n = static_cast<Eigen::Index>(graph.size());
  Eigen::MatrixXd walk = Eigen::MatrixXd::Zero(n, n);
  for (Node to = 0; to < graph.size(); ++to) {
    for (const Node from : graph.in(to)) {
      walk(to, from) = 1 / std::sqrt(degree(graph, to) * degree(graph, from));
    }
  }
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(walk, Eigen::EigenvaluesOnly);
  if (solver.info() != Eigen::Success) return {};
  return {solver.eigenvalues().begin(), solver.eigenvalues().end()};
}

std::vector<double> directed_eigenvalues(const Graph& graph) {
  const auto n = static_cast<Eigen::Index>(graph.size());
  Eigen::MatrixXd walk = Eigen::MatrixXd::Zero(n, n);
  for (Node to = 0; to < graph.size(); ++to) {
    for (const Node from : graph.in(to)) walk(to, from) = 1 / degree(graph, to);
  }
  const Eigen::EigenSolver<Eigen::MatrixXd> solver(walk, /*computeEigenvectors=*/false);
  if (solver.info() != Eigen::Success) return {};
  std::vector<double> real_parts;
  for (Eigen::Index i = 0; i < n; ++i) real_parts.push_back(solver.eigenvalues()[i].real());
  return real_parts;
}

}  // namespace

double spectral_gap(const Graph& graph) {
  SYNCD_CHECK(graph.size() >= 1 && graph.size() <= kSpectralNodesMax);
  if (graph.size() < 2) return 1;
  const auto n = static_cast<Eigen::Index>(graph.size());
  Eigen::MatrixXd mixing = Eigen::MatrixXd::Zero(n, n);
  for (Node to = 0; to < graph.size(); ++to) {
    const RowWeights row = row_weights(graph, Weighting::kEqual, to);
    mixing(to, to) = row.own;
    for (const Node from : graph.in(to)) mixing(to, from) = row.own;
  }
  // Singular values out of eigenvalues: a decomposition of their own takes half a minute to
  // compile. A symmetric matrix has them as magnitudes, another one M as roots of those of M'M.
  const bool symmetric = mixing == mixing.transpose();
  if (!symmetric) mixing = (mixing.transpose() * mixing).eval();
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(mixing, Eigen::EigenvaluesOnly);
  std::vector<double> sigma;
  for (const double value : solver.eigenvalues()) {
    sigma.push_back(symmetric ? std::abs(value) : std::sqrt(std::max(0.0, value)));
  }
  std::partial_sort(sigma.begin(), sigma.begin() + 2, sigma.end(), std::greater<>());
  return 1 - sigma[1];
}

std::optional<double> eigen_gap_no_self_loop(const Graph& graph) {
  SYNCD_CHECK(graph.size() >= 1 && graph.size() <= kSpectralNodesMax);
  if (graph.size() < 2) return std::nullopt;
  std::vector<double> values =
      is_undirected(graph) ? undirected_eigenvalues(graph) : directed_eigenvalues(graph);
  if (values.empty()) return std::nullopt;
  std::partial_sort(values.begin(), values.begin() + 2, values.end(), std::greater<>());
  return values[0] - values[1];
}

}  // namespace syncd::topology
