// A table of figures for people: aligned columns, one row per case. One thread.
#pragma once

#include <string>
#include <vector>

namespace syncd::bench {

class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

  // As many cells as the header has.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Prints to stdout: the first column to the left, all others to the right.
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string number(double value, int decimals = 1);  // "1234.5"
// "1.34x": the median of the ratios of rounds that were measured next to each other, so that what
// disturbs both sides of a round drops out. "-" if there is no round, or a denominator is 0.
std::string paired_ratio(const std::vector<double>& numerators,
                         const std::vector<double>& denominators);

}  // namespace syncd::bench
