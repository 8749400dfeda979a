// The MovieLens file formats: "u.data" (MovieLens 100K: user, item, rating, timestamp separated by
// tabs, no header) and "ratings.csv" (the later sets: a header line, then the same four separated
// by commas). Reading is strict, writing produces files that MovieLens readers take. Pure
// functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::trainer {

enum class RatingFormat { kUData, kRatingsCsv };

// Ratings with users and items renumbered from 0 without gaps, in ascending order of the ids that
// stand in the file. The three vectors have one entry per rating, in the file's order.
struct RatingData {
  std::uint32_t users = 0;
  std::uint32_t items = 0;
  std::vector<std::uint32_t> user;
  std::vector<std::uint32_t> item;
  std::vector<float> rating;
};

// Ids of users and items that the loader takes: 1 to this.
inline constexpr std::uint64_t kRatingIdMax = 2'000'000'000;

// Reads either format; a first line that begins with "userId" makes it ratings.csv.
//   u.data       ids 1..kRatingIdMax; ratings 1, 2, 3, 4, 5; timestamp a whole number
//   ratings.csv  ids likewise; ratings 0.5, 1.0, ... 5.0; timestamp likewise
// Throws DataError (data_file.h) for anything else, a truncated last line included.
RatingData load_ratings(const std::filesystem::path& file);

// The same from memory; `file` only serves in messages.
RatingData parse_ratings(const std::filesystem::path& file, std::string_view text);

// The text of a file in `format`. Ids are written from 1. Ratings must be on the format's scale;
// timestamps are made up, one second apart, since nothing here reads them.
std::string format_ratings(const RatingData& data, RatingFormat format);

}  // namespace syncd::trainer
