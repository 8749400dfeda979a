// Matrix products: see gemm.h. The only file that knows Eigen; the build always optimizes it,
// because unoptimized it is fifty times as slow.
#define EIGEN_DONT_PARALLELIZE
#include "reference_trainer/model/gemm.h"

#include <Eigen/Core>

namespace syncd::trainer {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Eigen::Map<const RowMajor> view(const float* data, std::size_t rows, std::size_t columns) {
  return {data, static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(columns)};
}

template <typename A, typename B, typename C>
void multiply_views(const A& a, const B& b, Into into, C& c) {
  if (into == Into::kAdd) {
    c.noalias() += a * b;
  } else {
    c.noalias() = a * b;
  }
}

}  // namespace

void multiply(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n,
              std::size_t k, const float* a, const float* b, Into into, float* c) {
  const bool a_is_turned = transpose_a == Transpose::kYes;
  const bool b_is_turned = transpose_b == Transpose::kYes;
  const auto a_view = a_is_turned ? view(a, k, m) : view(a, m, k);
  const auto b_view = b_is_turned ? view(b, n, k) : view(b, k, n);
  Eigen::Map<RowMajor> result(c, static_cast<Eigen::Index>(m), static_cast<Eigen::Index>(n));
  if (a_is_turned && b_is_turned) {
    multiply_views(a_view.transpose(), b_view.transpose(), into, result);
  } else if (a_is_turned) {
    multiply_views(a_view.transpose(), b_view, into, result);
  } else if (b_is_turned) {
    multiply_views(a_view, b_view.transpose(), into, result);
  } else {
    multiply_views(a_view, b_view, into, result);
  }
}

}  // namespace syncd::trainer
