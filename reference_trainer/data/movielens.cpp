// MovieLens formats: see movielens.h. No thread of its own.
#include "reference_trainer/data/movielens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reference_trainer/data/data_file.h"

namespace syncd::trainer {
namespace {

constexpr std::string_view kCsvHeader = "userId,movieId,rating,timestamp";
constexpr std::string_view kRatingForm =
    "MovieLens ratings: u.data (user<TAB>item<TAB>rating<TAB>timestamp) or ratings.csv (header "
    "userId,movieId,rating,timestamp)";
constexpr std::uint64_t kFirstTimestamp = 874'724'710;  // of the same period as MovieLens 100K

struct Columns {
  std::array<std::string_view, 4> names;
  char separator;
  std::string_view separator_name;
  double rating_step;
  double rating_min;
  std::string_view rating_allowed;
};

constexpr Columns kUDataColumns{
    {"user", "item", "rating", "timestamp"}, '\t', "tabs", 1.0, 1.0, "1, 2, 3, 4, 5"};
constexpr Columns kCsvColumns{{"userId", "movieId", "rating", "timestamp"},
                              ',',
                              "commas",
                              0.5,
                              0.5,
                              "0.5 to 5.0 in steps of 0.5"};

std::uint32_t parse_id(const LineCursor& lines, std::string_view name, std::string_view field) {
  const auto id = parse_unsigned(field);
  if (!id || *id < 1 || *id > kRatingIdMax) {
    lines.fail(fmt::format("{} {} is not an id; allowed: a whole number from 1 to {}", name,
                           show_field(field), kRatingIdMax));
  }
  return static_cast<std::uint32_t>(*id);
}

float parse_rating(const LineCursor& lines, const Columns& columns, std::string_view field) {
  const auto rating = parse_number(field);
  const bool on_scale = rating && *rating >= columns.rating_min && *rating <= 5.0 &&
                        std::fmod(*rating, columns.rating_step) == 0.0;
  if (!on_scale) {
    lines.fail(fmt::format("rating {} is not allowed; allowed: {}", show_field(field),
                           columns.rating_allowed));
  }
  return static_cast<float>(*rating);
}

void parse_line(const LineCursor& lines, const Columns& columns, std::string_view line,
                std::vector<std::string_view>& fields, RatingData& data) {
  split_fields(line, columns.separator, fields);
  if (fields.size() != columns.names.size()) {
    lines.fail(fmt::format("has {} field{} ({}); expected 4 separated by {}: {}, {}, {}, {}",
                           fields.size(), fields.size() == 1 ? "" : "s", show_field(line),
                           columns.separator_name, columns.names[0], columns.names[1],
                           columns.names[2], columns.names[3]));
  }
  data.user.push_back(parse_id(lines, columns.names[0], fields[0]));
  data.item.push_back(parse_id(lines, columns.names[1], fields[1]));
  data.rating.push_back(parse_rating(lines, columns, fields[2]));
  if (!parse_unsigned(fields[3])) {
    lines.fail(fmt::format("timestamp {} is not allowed; allowed: a whole number of seconds",
                           show_field(fields[3])));
  }
}

// Replaces ids by their place in the ascending list of those that occur; returns how many occur.
std::uint32_t renumber(std::vector<std::uint32_t>& ids) {
  std::vector<std::uint32_t> known = ids;
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  for (std::uint32_t& id : ids) {
    const auto place = std::lower_bound(known.begin(), known.end(), id);
    id = static_cast<std::uint32_t>(place - known.begin());
  }
  return static_cast<std::uint32_t>(known.size());
}

}  // namespace

RatingData load_ratings(const std::filesystem::path& file) {
  return parse_ratings(file, read_data_file(file, kRatingForm));
}

RatingData parse_ratings(const std::filesystem::path& file, std::string_view text) {
  LineCursor lines(file, text);
  RatingData data;
  std::vector<std::string_view> fields;
  const bool csv = text.starts_with("userId");
  if (csv && *lines.next() != kCsvHeader) {
    lines.fail(fmt::format("this header is not known; expected {}", kCsvHeader));
  }
  const Columns& columns = csv ? kCsvColumns : kUDataColumns;
  while (const auto line = lines.next()) parse_line(lines, columns, *line, fields, data);
  if (data.rating.empty()) {
    throw DataError(file, 0, "holds a header but no ratings; expected at least one");
  }
  data.users = renumber(data.user);
  data.items = renumber(data.item);
  return data;
}

std::string format_ratings(const RatingData& data, RatingFormat format) {
  fmt::memory_buffer text;
  auto out = fmt::appender(text);
  const bool csv = format == RatingFormat::kRatingsCsv;
  if (csv) out = fmt::format_to(out, "{}\n", kCsvHeader);
  for (std::size_t i = 0; i < data.rating.size(); ++i) {
    const std::uint64_t time = kFirstTimestamp + i;
    if (csv) {
      out = fmt::format_to(out, "{},{},{:.1f},{}\n", data.user[i] + 1, data.item[i] + 1,
                           data.rating[i], time);
    } else {
      out = fmt::format_to(out, "{}\t{}\t{:.0f}\t{}\n", data.user[i] + 1, data.item[i] + 1,
                           data.rating[i], time);
    }
  }
  return fmt::to_string(text);
}

}  // namespace syncd::trainer
