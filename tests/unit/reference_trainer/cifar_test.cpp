// The CIFAR formats: good files, truncated and wrong ones, what each error says; and which files of
// a directory are taken.
#include "reference_trainer/data/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "reference_trainer/data/data_file.h"
#include "reference_trainer/data/dataset.h"
#include "reference_trainer/run/process.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr ImageFormat kBoth[] = {ImageFormat::kCifar10, ImageFormat::kCifar100};

ImageData parse(std::string_view bytes, ImageFormat format = ImageFormat::kCifar10) {
  ImageData data;
  parse_images("dir/data_batch_1.bin", bytes, format, data);
  return data;
}

std::string parse_error(std::string_view bytes, ImageFormat format = ImageFormat::kCifar10) {
  return error_of<DataError>([&] { parse(bytes, format); });
}

// One record: the label bytes, then pixels 0, 1, 2, ...
std::string record(std::string labels) {
  std::string pixels(kImageBytes, '\0');
  std::iota(pixels.begin(), pixels.end(), '\0');
  return labels + pixels;
}

TEST(Cifar, ReadsTheLabelAndThePixelsInOrder) {
  const ImageData data = parse(record("\x09") + record("\x02"));
  EXPECT_THAT(data.label, ElementsAre(9, 2));
  ASSERT_EQ(data.pixels.size(), 2 * kImageBytes);
  EXPECT_EQ(data.pixels[kImageBytes], 0);
  EXPECT_EQ(data.pixels[2 * kImageBytes - 1], 255);
  EXPECT_EQ(data.pixels[1024 + 3], 3);
}

TEST(Cifar, OfCifar100TheFineLabelCounts) {
  EXPECT_THAT(parse(record("\x13\x63"), ImageFormat::kCifar100).label, ElementsAre(99));
}

TEST(Cifar, ReadsBackWhatWasWritten) {
  for (const ImageFormat format : kBoth) {
    const ImageData data = generate_images({.training = 7, .test = 1}, format, 3).training;
    const std::string bytes = format_images(data, 0, 7, format);
    EXPECT_EQ(bytes.size(), 7 * record_bytes(format));
    const ImageData again = parse(bytes, format);
    EXPECT_EQ(again.label, data.label);
    EXPECT_EQ(again.pixels, data.pixels);
    EXPECT_EQ(format_images(data, 2, 4, format),
              bytes.substr(2 * record_bytes(format), 2 * record_bytes(format)));
  }
}

TEST(Cifar, ACutFileSaysWhereItEnds) {
  EXPECT_EQ(parse_error(record("\1") + record("\1").substr(0, 1000)),
            "dir/data_batch_1.bin: byte 3073: the file ends after 1000 of the record's 3073 bytes: "
            "it was cut off or is of another format; allowed: whole cifar-10 records of 3073 bytes "
            "(1 label byte, 3072 pixel bytes)");
  EXPECT_THAT(parse_error(record("\1").substr(0, 3072)),
              StartsWith("dir/data_batch_1.bin: byte 0"));
}

TEST(Cifar, AFileOfTheOtherFormatIsRecognizedByItsSize) {
  EXPECT_THAT(parse_error(record("\1\1") + record("\1\1")),
              HasSubstr("its size is that of a cifar-100 file (--format cifar-100)"));
  EXPECT_THAT(
      parse_error(record("\1"), ImageFormat::kCifar100),
      AllOf(HasSubstr("(2 label bytes, 3072 pixel bytes)"), HasSubstr("--format cifar-10)")));
}

TEST(Cifar, LabelsBeyondTheClassesAreNamedWithTheirPlace) {
  EXPECT_EQ(parse_error(record("\1") + record("\x0a")),
            "dir/data_batch_1.bin: byte 3073 (record 1): label 10 is not allowed; allowed: 0 to 9");
  EXPECT_THAT(parse_error(record("\x14\1"), ImageFormat::kCifar100),
              HasSubstr("byte 0 (record 0): coarse label 20 is not allowed; allowed: 0 to 19"));
  EXPECT_THAT(parse_error(record("\1\x64"), ImageFormat::kCifar100),
              HasSubstr("byte 1 (record 0): fine label 100 is not allowed; allowed: 0 to 99"));
}

// ---- Directories

class ImageDirectory : public ::testing::Test {
 protected:
  ImageDirectory() { request_.kind = WorkloadKind::kCnn; }

  void write(const char* name, const std::string& bytes) const {
    write_data_file(place_.path() / name, bytes);
  }
  std::string describe() { return obtain_dataset(request_, place_.path()).description; }
  std::string error() {
    request_.directory = place_.path();
    return error_of<DatasetError>([this] { describe(); });
  }

  TemporaryDirectory place_;
  DatasetRequest request_;
};

TEST_F(ImageDirectory, HoldsOutTheTestImagesAndTakesTheTrainingFilesInOrder) {
  write("data_batch_1.bin", record("\1") + record("\2"));
  write("data_batch_2.bin", record("\3"));
  write("test_batch.bin", record("\4") + record("\5"));
  request_.directory = place_.path();
  const Dataset dataset = obtain_dataset(request_, place_.path());
  EXPECT_THAT(dataset.description, HasSubstr(": 3 images to train on, 2 held out, 10 classes"));
  const ImageView view = view_images(dataset.arrays);
  EXPECT_THAT(view.labels, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(view.training, 3U);
  std::vector<int> drawn;
  for (std::size_t i = 0; i < view.size(); ++i) drawn.push_back(view.label(i));
  std::sort(drawn.begin(), drawn.begin() + 3);
  std::sort(drawn.begin() + 3, drawn.end());
  EXPECT_THAT(drawn, ElementsAre(1, 2, 3, 4, 5)) << "shuffled, but not across the split";
}

// What the distributed archives unpack to, written down here byte by byte rather than with
// format_images(): cifar-10-batches-bin has five training files and one of test images, all of the
// same length, and cifar-100-binary two. There are ten thousand records in each (fifty thousand in
// train.bin), here fewer. A record of CIFAR-100 has its coarse label first, and which fine labels a
// coarse one has follows no rule.
TEST_F(ImageDirectory, ReadsTheArchivesAsTheyAreDistributed) {
  constexpr int kRecords = 40;
  const auto pixel = [](int image, int channel, int row, int column) {
    return static_cast<char>((image * 7 + channel * 85 + row * 3 + column) % 256);
  };
  int images = 0;
  const auto records = [&](int count, bool has_coarse) {
    std::string bytes;
    for (int i = 0; i < count; ++i, ++images) {
      if (has_coarse) bytes += static_cast<char>(images * 11 % 20);
      bytes += static_cast<char>(images * 3 % (has_coarse ? 100 : 10));
      for (int channel = 0; channel < 3; ++channel) {
        for (int row = 0; row < 32; ++row) {
          for (int column = 0; column < 32; ++column) bytes += pixel(images, channel, row, column);
        }
      }
    }
    return bytes;
  };
  for (const bool is_cifar100 : {false, true}) {
    images = 0;
    TemporaryDirectory place;
    const auto put = [&](const char* name, const std::string& bytes) {
      write_data_file(place.path() / name, bytes);
    };
    if (is_cifar100) {
      put("train.bin", records(5 * kRecords, true));
      put("test.bin", records(kRecords, true));
      put("coarse_label_names.txt", "aquatic_mammals\n");
      put("fine_label_names.txt", "apple\n");
    } else {
      for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                               "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
        put(name, records(kRecords, false));
      }
      put("batches.meta.txt", "airplane\n");
      put("readme.html", "<html></html>\n");
    }
    request_.directory = place.path();
    const Dataset dataset = obtain_dataset(request_, place.path());
    EXPECT_THAT(
        dataset.description,
        HasSubstr(is_cifar100 ? ": 200 images to train on, 40 held out, 100 classes (cifar-100"
                              : ": 200 images to train on, 40 held out, 10 classes (cifar-10"));
    const ImageView view = view_images(dataset.arrays);
    ASSERT_EQ(view.size(), 6U * kRecords);
    for (std::size_t sample = 0; sample < view.size(); ++sample) {
      const int image = static_cast<int>(view.order[sample]);
      ASSERT_EQ(image >= 5 * kRecords, sample >= view.training) << "held out are the test images";
      ASSERT_EQ(view.label(sample), image * 3 % (is_cifar100 ? 100 : 10));
      const auto pixels = view.pixels(sample);
      for (const auto& [channel, row, column] :
           {std::array{0, 0, 0}, std::array{1, 0, 31}, std::array{2, 31, 0}, std::array{2, 31, 31},
            std::array{0, 17, 5}}) {
        const auto place_in_image = static_cast<std::size_t>(channel * 1024 + row * 32 + column);
        ASSERT_EQ(static_cast<char>(pixels[place_in_image]), pixel(image, channel, row, column));
      }
    }
  }
}

TEST_F(ImageDirectory, SaysWhatIsMissing) {
  EXPECT_THAT(error(), AllOf(HasSubstr("holds no data_batch_1.bin or train.bin"),
                             HasSubstr("test.bin of CIFAR-100"), HasSubstr("--generate")));
  write("data_batch_2.bin", record("\3"));
  EXPECT_THAT(error(), HasSubstr("holds data_batch_2.bin, but not data_batch_1.bin"));
  write("data_batch_1.bin", record("\3"));
  EXPECT_THAT(error(), HasSubstr("holds no test_batch.bin"));
  write("test_batch.bin", record("\3"));
  EXPECT_EQ(error(), "no error");
  write("train.bin", record("\3\3"));
  EXPECT_THAT(error(), HasSubstr("holds both data_batch_1.bin and train.bin"));
  request_.image_format = ImageFormat::kCifar100;
  EXPECT_THAT(error(), HasSubstr("holds no test.bin"));
  write("test.bin", record("\3\3"));
  EXPECT_EQ(error(), "no error");
}

TEST_F(ImageDirectory, OfAFileAloneATenthIsHeldOut) {
  std::string bytes;
  for (int i = 0; i < 40; ++i) bytes += record("\1");
  write("some.bin", bytes);
  request_.file = place_.path() / "some.bin";
  EXPECT_THAT(describe(), HasSubstr("some.bin: 36 images to train on, 4 held out"));
  write("some.bin", record("\1"));
  EXPECT_THAT(error_of<DataError>([this] { describe(); }), HasSubstr("holds one image"));
}

TEST_F(ImageDirectory, GeneratesBothFormatsAndNeverOverwrites) {
  request_.generate = true;
  request_.samples = 1'000;
  for (const ImageFormat format : kBoth) {
    request_.image_format = format;
    request_.directory = place_.path() / std::string(format_name(format));
    EXPECT_THAT(describe(), HasSubstr("1000 images to train on, 200 held out"));
    const auto test = *request_.directory / test_file_name(format);
    EXPECT_EQ(read_data_file(test, "").size(), 200 * record_bytes(format));
    for (const std::string& name : training_file_names(format)) {
      EXPECT_TRUE(std::filesystem::exists(*request_.directory / name)) << name;
    }
    EXPECT_THAT(describe(), HasSubstr("1000 images")) << "its own files are taken again";
    write_data_file(test, record(format == ImageFormat::kCifar10 ? "\1" : "\1\1"));
    EXPECT_THAT(error_of<DatasetError>([this] { describe(); }),
                HasSubstr("exists and holds other data"));
  }
}

TEST(PrepareImages, NormalizesByTheTrainingImagesAlone) {
  ImageSet set;
  // Red 10 and 30, green 255 everywhere, blue 0 everywhere; the test image is white.
  for (const std::uint8_t red : {std::uint8_t{10}, std::uint8_t{30}}) {
    set.training.label.push_back(1);
    for (std::size_t i = 0; i < kImageBytes; ++i) {
      const std::uint8_t colours[] = {red, 255, 0};
      set.training.pixels.push_back(colours[i / kImageArea]);
    }
  }
  set.test.label = {2};
  set.test.pixels.assign(kImageBytes, 255);
  const SharedArrays arrays = prepare_images(set, 1);
  const ImageView view = view_images(arrays);
  EXPECT_DOUBLE_EQ(view.mean[0], 20.0 / 255);
  EXPECT_DOUBLE_EQ(view.deviation[0], 10.0 / 255);
  EXPECT_EQ(view.mean[1], 1);
  EXPECT_EQ(view.deviation[1], 1) << "nothing is divided by 0";
  EXPECT_EQ(view.mean[2], 0);
}

}  // namespace
}  // namespace syncd::trainer
