// Printing of tables. One thread.
#include "tests/bench/table.h"

#include <algorithm>
#include <cstdio>

#include "tests/bench/measure.h"

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

std::string paired_ratio(const std::vector<double>& numerators,
                         const std::vector<double>& denominators) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(numerators.size(), denominators.size()); ++i) {
    if (denominators[i] <= 0) return "-";
    ratios.push_back(numerators[i] / denominators[i]);
  }
  return ratios.empty() ? "-" : number(median(std::move(ratios)), 2) + "x";
}

}  // namespace syncd::bench
