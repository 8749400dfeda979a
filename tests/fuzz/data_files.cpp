// Data sets as the reference trainer reads them: [format, file]. What is wrong is said with the
// file's name; what is read is the same after it was written and read again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "reference_trainer/data/cifar.h"
#include "reference_trainer/data/data_file.h"
#include "reference_trainer/data/libsvm.h"
#include "reference_trainer/data/movielens.h"
#include "tests/fuzz/check.h"

namespace {

using namespace syncd;
using namespace syncd::trainer;

const std::filesystem::path kFile = "data.bin";

void try_images(std::string_view bytes, ImageFormat format) {
  ImageData data;
  parse_images(kFile, bytes, format, data);
  fuzz::require(data.size() * record_bytes(format) == bytes.size(), "images are missing");
  fuzz::require(data.pixels.size() == data.size() * kImageBytes, "pixels are missing");
  for (const std::uint8_t label : data.label) {
    fuzz::require(label < class_count(format), "a label that is none");
  }
  ImageData again;
  parse_images(kFile, format_images(data, 0, data.size(), format), format, again);
  fuzz::require(again.label == data.label && again.pixels == data.pixels, "images change");
}

void try_ratings(std::string_view text) {
  const RatingData data = parse_ratings(kFile, text);
  fuzz::require(data.user.size() == data.rating.size() && data.item.size() == data.rating.size(),
                "ratings without a user or an item");
  bool whole = true;
  for (std::size_t i = 0; i < data.rating.size(); ++i) {
    fuzz::require(data.user[i] < data.users && data.item[i] < data.items, "an id out of range");
    fuzz::require(data.rating[i] >= 0.5F && data.rating[i] <= 5, "a rating out of range");
    whole = whole && data.rating[i] == static_cast<float>(static_cast<int>(data.rating[i]));
  }
  for (const RatingFormat format : {RatingFormat::kRatingsCsv, RatingFormat::kUData}) {
    if (format == RatingFormat::kUData && !whole) continue;
    const RatingData again = parse_ratings(kFile, format_ratings(data, format));
    fuzz::require(again.users == data.users && again.items == data.items &&
                      again.user == data.user && again.item == data.item &&
                      again.rating == data.rating,
                  "ratings change");
  }
}

void try_examples(std::string_view text) {
  const ExampleData data = parse_libsvm(kFile, text);
  fuzz::require(data.row_start.size() == data.label.size() + 1 &&
                    data.row_start.back() == data.column.size() &&
                    data.column.size() == data.value.size(),
                "examples of another length");
  for (const std::uint32_t column : data.column) {
    fuzz::require(column < data.features, "a feature out of range");
  }
  const ExampleData again = parse_libsvm(kFile, format_libsvm(data));
  fuzz::require(again.features == data.features && again.row_start == data.row_start &&
                    again.column == data.column && again.value == data.value &&
                    again.label == data.label,
                "examples change");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes = fuzz::text_of({data + 1, size - 1});
  try {
    switch (data[0] % 4) {
      case 0:
        try_images(bytes, ImageFormat::kCifar10);
        break;
      case 1:
        try_images(bytes, ImageFormat::kCifar100);
        break;
      case 2:
        try_ratings(bytes);
        break;
      case 3:
        try_examples(bytes);
        break;
    }
  } catch (const DataError& error) {
    const std::string_view what = error.what();
    fuzz::require(what.starts_with(kFile.string()) && what.size() > kFile.string().size() + 2,
                  "an error that does not say what is wrong where", what);
  }
  return 0;
}
