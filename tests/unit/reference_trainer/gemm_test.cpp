// Products of matrices against three loops.
#include "reference_trainer/model/gemm.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/reference_trainer/cnn_reference.h"

namespace syncd::trainer {
namespace {

TEST(Multiply, AgreesWithThreeLoopsForEveryTransposition) {
  using testing::draw_normals;
  using Values = std::vector<double>;
  const std::size_t m = 3, n = 5, k = 7;
  const Values a = draw_normals(m * k, 1), b = draw_normals(k * n, 2), c = draw_normals(m * n, 3);
  for (const Transpose turn_a : {Transpose::kNo, Transpose::kYes}) {
    for (const Transpose turn_b : {Transpose::kNo, Transpose::kYes}) {
      for (const Into into : {Into::kOverwrite, Into::kAdd}) {
        std::vector<float> stored_a(a.size()), stored_b(b.size()), result(c.begin(), c.end());
        Values expected = into == Into::kAdd ? c : Values(c.size());
        for (std::size_t i = 0; i < m; ++i) {
          for (std::size_t p = 0; p < k; ++p) {
            const std::size_t place_a = turn_a == Transpose::kYes ? p * m + i : i * k + p;
            stored_a[place_a] = static_cast<float>(a[i * k + p]);
            for (std::size_t j = 0; j < n; ++j) {
              const std::size_t place_b = turn_b == Transpose::kYes ? j * k + p : p * n + j;
              stored_b[place_b] = static_cast<float>(b[p * n + j]);
              expected[i * n + j] += a[i * k + p] * b[p * n + j];
            }
          }
        }
        multiply(turn_a, turn_b, m, n, k, stored_a.data(), stored_b.data(), into, result.data());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(double{result[i]}, expected[i], 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace syncd::trainer
