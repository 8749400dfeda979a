// Matrix products: see gemm.h. The only file that knows Eigen; the build always optimizes it,
// because unoptimized it is fifty times as slow.
#define EIGEN_DONT_PARALLELIZE
#include "reference_trainer/gemm.h"

#include <Eigen/Core>

namespace syncd::trainer {
namespace {

template <typename T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <typename T>
Eigen::Map<const RowMajor<T>> view(const T* data, std::size_t rows, std::size_t columns) {
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

template <typename T>
void multiply(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n,
              std::size_t k, const T* a, const T* b, Into into, T* c) {
  const bool a_is_turned = transpose_a == Transpose::kYes;
  const bool b_is_turned = transpose_b == Transpose::kYes;
  const auto a_view = a_is_turned ? view(a, k, m) : view(a, m, k);
  const auto b_view = b_is_turned ? view(b, n, k) : view(b, k, n);
  Eigen::Map<RowMajor<T>> result(c, static_cast<Eigen::Index>(m), static_cast<Eigen::Index>(n));
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

template void multiply<float>(Transpose, Transpose, std::size_t, std::size_t, std::size_t,
                              const float*, const float*, Into, float*);
template void multiply<double>(Transpose, Transpose, std::size_t, std::size_t, std::size_t,
                               const double*, const double*, Into, double*);

}  // namespace syncd::trainer
