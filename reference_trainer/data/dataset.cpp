// Finding, generating and loading data: see dataset.h. No thread of its own.
#include "reference_trainer/data/dataset.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "reference_trainer/data/data_file.h"
#include "reference_trainer/data/generate.h"
#include "reference_trainer/data/libsvm.h"
#include "reference_trainer/data/prepare.h"

namespace syncd::trainer {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> known_names(WorkloadKind kind) {
  if (kind == WorkloadKind::kSvm) return {"train.libsvm"};
  return {"u.data", "ratings.csv"};
}

// A file to be written.
struct NamedBytes {
  std::string name;
  std::string bytes;
};

std::vector<NamedBytes> generated_images(const DatasetRequest& request) {
  const ImageFormat format = request.image_format.value_or(ImageFormat::kCifar10);
  ImageShape shape;
  if (request.samples) {
    shape.training = *request.samples;
    shape.test = *request.samples / 5;
  }
  const ImageSet images = generate_images(shape, format, request.seed);
  const std::vector<std::string> names = training_file_names(format);
  std::vector<NamedBytes> files;
  for (std::size_t i = 0; i < names.size(); ++i) {
    files.push_back({names[i], format_images(images.training, shape.training * i / names.size(),
                                             shape.training * (i + 1) / names.size(), format)});
  }
  files.push_back({test_file_name(format), format_images(images.test, 0, shape.test, format)});
  return files;
}

std::vector<NamedBytes> generated_files(const DatasetRequest& request) {
  if (request.kind == WorkloadKind::kCnn) return generated_images(request);
  if (request.kind == WorkloadKind::kSvm) {
    ExampleShape shape;
    shape.examples = request.samples.value_or(shape.examples);
    return {{"train.libsvm", format_libsvm(generate_examples(shape, request.seed))}};
  }
  RatingShape shape;
  if (request.samples) {
    // As many users and items as keep the share of rated pairs.
    const double scale =
        std::sqrt(static_cast<double>(*request.samples) / static_cast<double>(shape.ratings));
    shape.users = static_cast<std::uint32_t>(std::round(shape.users * scale));
    shape.items = static_cast<std::uint32_t>(std::round(shape.items * scale));
    shape.ratings = *request.samples;
  }
  return {{request.format == RatingFormat::kUData ? "u.data" : "ratings.csv",
           format_ratings(generate_ratings(shape, request.format, request.seed), request.format)}};
}

// Returns the first file that was written, or was there already.
fs::path generate_data(const DatasetRequest& request, const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    throw DatasetError(
        fmt::format("--data-dir: {} cannot be made: {}", directory.string(), error.message()));
  }
  const std::vector<NamedBytes> files = generated_files(request);
  for (const auto& [name, bytes] : files) {
    const fs::path file = directory / name;
    if (!fs::exists(file, error) || read_data_file(file, "data of ours") == bytes) continue;
    throw DatasetError(fmt::format(
        "--generate: {} exists and holds other data, which is not overwritten; leave out "
        "--generate to train on it, or name another --data-dir",
        file.string()));
  }
  for (const auto& [name, bytes] : files) {
    if (!fs::exists(directory / name, error)) write_data_file(directory / name, bytes);
  }
  return directory / files.front().name;
}

fs::path find_file(const DatasetRequest& request) {
  const std::vector<std::string> names = known_names(request.kind);
  std::string looked_for;
  for (const std::string& name : names) {
    fs::path candidate = *request.directory / name;
    std::error_code error;
    if (fs::exists(candidate, error)) return candidate;
    looked_for += (looked_for.empty() ? "" : " or ") + name;
  }
  throw DatasetError(fmt::format(
      "--data-dir: {} holds no {}; put the data there, name its file with --data, or let "
      "--generate write some",
      request.directory->string(), looked_for));
}

fs::path choose_file(const DatasetRequest& request, const fs::path& scratch) {
  if (request.file) return *request.file;
  if (request.generate) return generate_data(request, request.directory.value_or(scratch));
  return find_file(request);
}

// What the user reads of where the data is from. A file in the scratch directory is gone when
// somebody could look for it.
std::string origin_of(const DatasetRequest& request, const fs::path& place,
                      const std::string& generated) {
  if (!request.generate) return place.string();
  return request.directory ? place.string() + " (generated)" : "generated " + generated;
}

// ---- Images: several files

// The training files of this format in the directory; none if there are none at all.
std::vector<fs::path> training_files(const fs::path& directory, ImageFormat format) {
  std::vector<fs::path> files;
  std::string missing;
  for (const std::string& name : training_file_names(format)) {
    std::error_code error;
    if (!fs::exists(directory / name, error)) {
      if (missing.empty()) missing = name;
    } else if (!missing.empty()) {
      throw DatasetError(
          fmt::format("--data-dir: {} holds {}, but not {}: a part of the data is "
                      "missing",
                      directory.string(), name, missing));
    } else {
      files.push_back(directory / name);
    }
  }
  return files;
}

// The only format of which the directory has training files.
ImageFormat find_image_format(const fs::path& directory) {
  const bool is_cifar10 = !training_files(directory, ImageFormat::kCifar10).empty();
  const bool is_cifar100 = !training_files(directory, ImageFormat::kCifar100).empty();
  if (is_cifar10 && is_cifar100) {
    throw DatasetError(
        fmt::format("--data-dir: {} holds both data_batch_1.bin and train.bin; say which with "
                    "--format cifar-10 or --format cifar-100",
                    directory.string()));
  }
  return is_cifar100 ? ImageFormat::kCifar100 : ImageFormat::kCifar10;
}

ImageSet load_image_directory(const DatasetRequest& request, const fs::path& directory) {
  ImageSet set;
  set.format = request.image_format ? *request.image_format
               : request.generate   ? ImageFormat::kCifar10
                                    : find_image_format(directory);
  const std::vector<fs::path> files = training_files(directory, set.format);
  const fs::path test = directory / test_file_name(set.format);
  std::error_code error;
  if (files.empty() || !fs::exists(test, error)) {
    throw DatasetError(fmt::format(
        "--data-dir: {} holds no {}{}; put the data there (the binary version: data_batch_1.bin to "
        "data_batch_5.bin and test_batch.bin of CIFAR-10, or train.bin and test.bin of CIFAR-100), "
        "name a file with --data, or let --generate write some",
        directory.string(),
        files.empty() ? training_file_names(set.format).front() : test.filename().string(),
        files.empty() && !request.image_format ? " or train.bin" : ""));
  }
  for (const fs::path& file : files) append_images(file, set.format, set.training);
  append_images(test, set.format, set.test);
  return set;
}

Dataset obtain_images(const DatasetRequest& request, const fs::path& scratch) {
  ImageSet set;
  fs::path place;
  if (request.file) {
    place = *request.file;
    set.format = request.image_format.value_or(ImageFormat::kCifar10);
    append_images(place, set.format, set.training);
    if (set.training.size() < 2) {
      throw DataError(place, 0, "holds one image; expected at least two, of which one is held out");
    }
  } else {
    place = request.directory.value_or(scratch);
    if (request.generate) generate_data(request, place);
    set = load_image_directory(request, place);
  }
  const ImageFormat format = set.format;
  SharedArrays arrays = prepare_images(std::move(set), request.seed);
  const ImageView view = view_images(arrays);
  const std::size_t training = view.training;
  const std::size_t held_out = view.size() - training;
  return {std::move(arrays),
          fmt::format("{}: {} images to train on, {} held out, {} classes ({} format)",
                      origin_of(request, place, "images"), training, held_out, class_count(format),
                      format_name(format))};
}

}  // namespace

Dataset obtain_dataset(const DatasetRequest& request, const fs::path& scratch) {
  if (request.kind == WorkloadKind::kCnn) return obtain_images(request, scratch);
  const fs::path file = choose_file(request, scratch);
  const std::string origin = origin_of(request, file, file.filename().string());
  // Two samples are the least that can be split; the loaders have no opinion on that.
  const auto check_size = [&](std::size_t samples) {
    if (samples < 2) throw DataError(file, 0, "holds one sample; expected at least two");
  };
  if (request.kind == WorkloadKind::kSvm) {
    const ExampleData data = load_libsvm(file);
    check_size(data.label.size());
    return {prepare_examples(data, request.seed),
            fmt::format("{}: {} examples, {} features, {} values", origin, data.label.size(),
                        data.features, data.value.size())};
  }
  const RatingData data = load_ratings(file);
  check_size(data.rating.size());
  return {prepare_ratings(data, request.seed),
          fmt::format("{}: {} ratings, {} users, {} items", origin, data.rating.size(), data.users,
                      data.items)};
}

}  // namespace syncd::trainer
