// The CIFAR formats: see cifar.h. No thread of its own.
#include "reference_trainer/data/cifar.h"

#include <fmt/format.h>

#include "reference_trainer/data/data_file.h"

namespace syncd::trainer {
namespace {

constexpr std::size_t kCoarseLabels = 20;
constexpr std::size_t kFinePerCoarse = 5;

std::size_t label_bytes(ImageFormat format) {
  return format == ImageFormat::kCifar10 ? 1 : 2;
}

std::string describe(ImageFormat format) {
  return fmt::format(
      "{} records of {} bytes ({}{} pixel bytes)", format_name(format), record_bytes(format),
      format == ImageFormat::kCifar10 ? "1 label byte, " : "2 label bytes, ", kImageBytes);
}

void check_size(const std::filesystem::path& file, std::size_t size, ImageFormat format) {
  const std::size_t record = record_bytes(format);
  const std::size_t rest = size % record;
  if (rest == 0) return;
  const ImageFormat other =
      format == ImageFormat::kCifar10 ? ImageFormat::kCifar100 : ImageFormat::kCifar10;
  std::string hint;
  if (size % record_bytes(other) == 0) {
    hint = fmt::format("; its size is that of a {} file (--format {})", format_name(other),
                       format_name(other));
  }
  throw DataError(
      file, 0,
      fmt::format("byte {}: the file ends after {} of the record's {} bytes: it was cut "
                  "off or is of another format; allowed: whole {}{}",
                  size - rest, rest, record, describe(format), hint));
}

void check_label(const std::filesystem::path& file, std::size_t offset, std::size_t record,
                 std::string_view kind, std::uint8_t label, std::size_t count) {
  if (label < count) return;
  throw DataError(file, 0,
                  fmt::format("byte {} (record {}): {} {} is not allowed; allowed: 0 to {}", offset,
                              record, kind, label, count - 1));
}

}  // namespace

std::string_view format_name(ImageFormat format) {
  return format == ImageFormat::kCifar10 ? "cifar-10" : "cifar-100";
}

std::size_t class_count(ImageFormat format) {
  return format == ImageFormat::kCifar10 ? 10 : 100;
}

std::size_t record_bytes(ImageFormat format) {
  return label_bytes(format) + kImageBytes;
}

std::string test_file_name(ImageFormat format) {
  return format == ImageFormat::kCifar10 ? "test_batch.bin" : "test.bin";
}

std::vector<std::string> training_file_names(ImageFormat format) {
  if (format == ImageFormat::kCifar100) return {"train.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
          "data_batch_5.bin"};
}

void parse_images(const std::filesystem::path& file, std::string_view bytes, ImageFormat format,
                  ImageData& data) {
  check_size(file, bytes.size(), format);
  const std::size_t record = record_bytes(format);
  const std::size_t labels = label_bytes(format);
  data.pixels.reserve(data.pixels.size() + bytes.size());
  for (std::size_t offset = 0; offset < bytes.size(); offset += record) {
    const std::size_t number = offset / record;
    const std::size_t label_at = offset + labels - 1;
    const auto label = static_cast<std::uint8_t>(bytes[label_at]);
    if (labels == 2) {
      check_label(file, offset, number, "coarse label", static_cast<std::uint8_t>(bytes[offset]),
                  kCoarseLabels);
    }
    check_label(file, label_at, number, labels == 2 ? "fine label" : "label", label,
                class_count(format));
    data.label.push_back(label);
    const std::string_view pixels = bytes.substr(offset + labels, kImageBytes);
    data.pixels.insert(data.pixels.end(), pixels.begin(), pixels.end());
  }
}

void append_images(const std::filesystem::path& file, ImageFormat format, ImageData& data) {
  parse_images(file, read_data_file(file, describe(format)), format, data);
}

std::string format_images(const ImageData& data, std::size_t first, std::size_t last,
                          ImageFormat format) {
  std::string bytes;
  bytes.reserve((last - first) * record_bytes(format));
  for (std::size_t i = first; i < last; ++i) {
    if (format == ImageFormat::kCifar100) {
      bytes += static_cast<char>(data.label[i] / kFinePerCoarse);
    }
    bytes += static_cast<char>(data.label[i]);
    bytes.append(reinterpret_cast<const char*>(data.pixels.data()) + i * kImageBytes, kImageBytes);
  }
  return bytes;
}

}  // namespace syncd::trainer
