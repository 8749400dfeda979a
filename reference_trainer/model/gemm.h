// The product of dense matrices, the one piece of linear algebra that the networks on the CPU need.
// The library behind it is Eigen, which is seen by gemm.cpp alone; it runs on the calling thread
// and starts none, so that a worker process keeps to one core. Pure functions.
#pragma once

#include <cstddef>

namespace syncd::trainer {

enum class Transpose { kNo, kYes };

// What becomes of the values that the result's memory holds.
enum class Into { kOverwrite, kAdd };

// c (m x n) = a (m x k) . b (k x n), or c += a . b. All row-major without gaps. With
// Transpose::kYes the memory of a is k x m (that of b: n x k) and its transpose is taken. c
// overlaps neither.
void multiply(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n,
              std::size_t k, const float* a, const float* b, Into into, float* c);

}  // namespace syncd::trainer
