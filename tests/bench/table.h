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

std::string number(double value, int decimals = 1);       // "1234.5"
std::string times(double numerator, double denominator);  // "1.34x"; "-" without a denominator

}  // namespace syncd::bench
