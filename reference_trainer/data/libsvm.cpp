// The libsvm format: see libsvm.h. No thread of its own.
#include "reference_trainer/data/libsvm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference_trainer/data/data_file.h"

namespace syncd::trainer {
namespace {

constexpr std::string_view kExampleForm =
    "libsvm examples (LABEL INDEX:VALUE INDEX:VALUE ..., one example a line)";
constexpr std::string_view kLabelsAllowed = "-1 and +1, 0 and 1, or 1 and 2";

// The two labels of a file, in the order in which they were met.
class Labels {
 public:
  // Throws for a label that no two-class file may hold beside the ones met before.
  float take(const LineCursor& lines, std::string_view field) {
    const auto label = parse_number(field);
    if (!label || (*label != -1 && *label != 0 && *label != 1 && *label != 2)) {
      lines.fail(fmt::format("label {} is not allowed; allowed in one file: {}", show_field(field),
                             kLabelsAllowed));
    }
    const auto value = static_cast<float>(*label);
    if (std::find(met_.begin(), met_.end(), value) != met_.end()) return value;
    met_.push_back(value);
    if (met_.size() > 2 || (met_.size() == 2 && !is_pair())) {
      lines.fail(
          fmt::format("label {} does not go with the label {} of earlier lines; allowed in "
                      "one file: {}",
                      show_field(field), met_.front(), kLabelsAllowed));
    }
    return value;
  }

  bool complete() const { return met_.size() == 2; }
  float only() const { return met_.front(); }
  float lower() const { return std::min(met_[0], met_[1]); }

 private:
  bool is_pair() const {
    const float low = std::min(met_[0], met_[1]);
    const float high = std::max(met_[0], met_[1]);
    return (low == -1 && high == 1) || (low == 0 && high == 1) || (low == 1 && high == 2);
  }

  std::vector<float> met_;
};

// Takes the next word off the front of `rest`; empty at its end.
std::string_view next_word(std::string_view& rest) {
  const std::size_t start = rest.find_first_not_of(" \t");
  if (start == std::string_view::npos) {
    rest = {};
    return {};
  }
  const std::size_t end = std::min(rest.find_first_of(" \t", start), rest.size());
  const std::string_view word = rest.substr(start, end - start);
  rest.remove_prefix(end);
  return word;
}

void parse_feature(const LineCursor& lines, std::string_view word, std::uint64_t& previous,
                   ExampleData& data) {
  const std::size_t colon = word.find(':');
  if (colon == std::string_view::npos) {
    lines.fail(fmt::format("{} is not INDEX:VALUE", show_field(word)));
  }
  const auto index = parse_unsigned(word.substr(0, colon));
  if (!index || *index < 1 || *index > kFeatureIndexMax) {
    lines.fail(fmt::format("feature index {} is not allowed; allowed: a whole number from 1 to {}",
                           show_field(word.substr(0, colon)), kFeatureIndexMax));
  }
  if (*index <= previous) {
    lines.fail(fmt::format("feature index {} follows {}; indices must ascend within a line", *index,
                           previous));
  }
  const auto value = parse_number(word.substr(colon + 1));
  if (!value || !std::isfinite(static_cast<float>(*value))) {
    lines.fail(fmt::format("the value {} of feature {} is not a number; allowed: any finite number",
                           show_field(word.substr(colon + 1)), *index));
  }
  previous = *index;
  data.column.push_back(static_cast<std::uint32_t>(*index - 1));
  data.value.push_back(static_cast<float>(*value));
}

void parse_example(const LineCursor& lines, std::string_view line, Labels& labels,
                   ExampleData& data) {
  std::string_view rest = line;
  std::string_view word = next_word(rest);
  if (word.empty()) lines.fail(fmt::format("the line is empty; expected {}", kExampleForm));
  data.label.push_back(labels.take(lines, word));
  std::uint64_t previous = 0;
  while (!(word = next_word(rest)).empty()) parse_feature(lines, word, previous, data);
  data.features = std::max(data.features, static_cast<std::uint32_t>(previous));
  data.row_start.push_back(data.column.size());
}

}  // namespace

ExampleData load_libsvm(const std::filesystem::path& file) {
  return parse_libsvm(file, read_data_file(file, kExampleForm));
}

ExampleData parse_libsvm(const std::filesystem::path& file, std::string_view text) {
  LineCursor lines(file, text);
  Labels labels;
  ExampleData data;
  while (const auto line = lines.next()) {
    const std::size_t comment = line->find('#');
    const std::string_view content = line->substr(0, comment);
    // A line that is nothing but a comment is no example; an empty line is a mistake.
    const bool blank = content.find_first_not_of(" \t") == std::string_view::npos;
    if (comment != std::string_view::npos && blank) continue;
    parse_example(lines, content, labels, data);
  }
  if (data.label.empty())
    throw DataError(file, 0, fmt::format("holds no example; expected {}", kExampleForm));
  if (!labels.complete()) {
    throw DataError(
        file, 0,
        fmt::format("every label is {}; expected two classes: {}", labels.only(), kLabelsAllowed));
  }
  if (data.features == 0)
    throw DataError(file, 0, "no example has a feature; expected INDEX:VALUE");
  const float lower = labels.lower();
  for (float& label : data.label) label = label == lower ? -1.0F : 1.0F;
  return data;
}

std::string format_libsvm(const ExampleData& data) {
  fmt::memory_buffer text;
  auto out = fmt::appender(text);
  for (std::size_t row = 0; row < data.label.size(); ++row) {
    out = fmt::format_to(out, "{}", data.label[row] > 0 ? "+1" : "-1");
    for (std::uint64_t i = data.row_start[row]; i < data.row_start[row + 1]; ++i) {
      out = fmt::format_to(out, " {}:{}", data.column[i] + 1, data.value[i]);
    }
    out = fmt::format_to(out, "\n");
  }
  return fmt::to_string(text);
}

}  // namespace syncd::trainer
