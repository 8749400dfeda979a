// Printing of tables. One thread.
#include "tests/bench/table.h"

#include <algorithm>
#include <cstdio>

namespace syncd::bench {

void Table::print() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const int width = static_cast<int>(widths[i]);
      std::printf(i == 0 ? "%-*s" : "  %*s", width, row[i].c_str());
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

std::string number(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string times(double numerator, double denominator) {
  if (denominator <= 0) return "-";
  return number(numerator / denominator, 2) + "x";
}

}  // namespace syncd::bench
