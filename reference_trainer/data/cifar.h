// The binary formats of CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning multiple layers of features
// from tiny images", 2009): records of one label byte (CIFAR-100: two, the coarse and the fine one)
// and 3072 pixel bytes: 32 x 32 of red, of green, of blue, each by rows. The distributed files have
// 10,000 records each, train.bin 50,000; any number is read. Reading is strict. Pure functions but
// for reading files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::trainer {

enum class ImageFormat { kCifar10, kCifar100 };

inline constexpr std::size_t kImageChannels = 3;
inline constexpr std::size_t kImageSide = 32;
inline constexpr std::size_t kImageArea = kImageSide * kImageSide;
inline constexpr std::size_t kImageBytes = kImageChannels * kImageArea;

// "cifar-10", "cifar-100".
std::string_view format_name(ImageFormat format);
std::size_t class_count(ImageFormat format);     // of the labels that are trained on: 10, 100
std::size_t record_bytes(ImageFormat format);    // 3073, 3074
std::string test_file_name(ImageFormat format);  // "test_batch.bin", "test.bin"

// The names of the training files, in order: "data_batch_1.bin" to "data_batch_5.bin"; "train.bin".
std::vector<std::string> training_file_names(ImageFormat format);

struct ImageData {
  std::vector<std::uint8_t> label;   // below class_count(); of CIFAR-100 the fine one
  std::vector<std::uint8_t> pixels;  // kImageBytes per image

  std::size_t size() const { return label.size(); }
};

// Training and test images. Without test images, some of the others are to be held out.
struct ImageSet {
  ImageFormat format = ImageFormat::kCifar10;
  ImageData training;
  ImageData test;
};

// Appends a file's images. Throws DataError (data_file.h), which names the byte, for a file that
// does not consist of whole records, and for a label that is none.
void append_images(const std::filesystem::path& file, ImageFormat format, ImageData& data);

// The same from memory; `file` only serves in messages.
void parse_images(const std::filesystem::path& file, std::string_view bytes, ImageFormat format,
                  ImageData& data);

// The bytes of a file with images [first, last). CIFAR-100's coarse label is the fine one / 5.
std::string format_images(const ImageData& data, std::size_t first, std::size_t last,
                          ImageFormat format);

}  // namespace syncd::trainer
