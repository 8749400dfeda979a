// The libsvm file format for two classes: one example a line, "LABEL INDEX:VALUE INDEX:VALUE ...",
// indices from 1 in ascending order, absent ones 0, '#' begins a comment. Reading is strict,
// writing produces files that libsvm and liblinear take. Pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::trainer {

// Examples as compressed sparse rows. Row i has the columns column[row_start[i] .. row_start[i+1]),
// ascending and from 0, with the values beside them, and the label label[i], -1 or +1.
struct ExampleData {
  std::uint32_t features = 0;  // the largest index in the file
  std::vector<std::uint64_t> row_start{0};
  std::vector<std::uint32_t> column;
  std::vector<float> value;
  std::vector<float> label;
};

// Largest feature index that the loader takes; the model has one parameter for each.
inline constexpr std::uint64_t kFeatureIndexMax = 50'000'000;

// Labels: -1 and +1, 0 and 1, or 1 and 2 (the smaller one becomes -1); both must occur. Values: any
// finite number. Throws DataError (data_file.h) for anything else, a truncated last line included.
ExampleData load_libsvm(const std::filesystem::path& file);

// The same from memory; `file` only serves in messages.
ExampleData parse_libsvm(const std::filesystem::path& file, std::string_view text);

// The text of a libsvm file with labels "-1" and "+1"; values are written so that reading gives
// the same floats back.
std::string format_libsvm(const ExampleData& data);

}  // namespace syncd::trainer
