// Finding, generating and loading data: see dataset.h. No thread of its own.
#include "reference_trainer/dataset.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "reference_trainer/data_file.h"
#include "reference_trainer/generate.h"
#include "reference_trainer/libsvm.h"
#include "reference_trainer/prepare.h"

namespace syncd::trainer {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> known_names(WorkloadKind kind) {
  if (kind == WorkloadKind::kSvm) return {"train.libsvm"};
  return {"u.data", "ratings.csv"};
}

std::string generated_name(const DatasetRequest& request) {
  if (request.kind == WorkloadKind::kSvm) return "train.libsvm";
  return request.format == RatingFormat::kUData ? "u.data" : "ratings.csv";
}

std::string generated_text(const DatasetRequest& request) {
  if (request.kind == WorkloadKind::kSvm) {
    ExampleShape shape;
    shape.examples = request.samples.value_or(shape.examples);
    return format_libsvm(generate_examples(shape, request.seed));
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
  return format_ratings(generate_ratings(shape, request.format, request.seed), request.format);
}

fs::path generate_file(const DatasetRequest& request, const fs::path& scratch) {
  const fs::path directory = request.directory.value_or(scratch);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    throw DatasetError(
        fmt::format("--data-dir: {} cannot be made: {}", directory.string(), error.message()));
  }
  fs::path file = directory / generated_name(request);
  const std::string text = generated_text(request);
  if (fs::exists(file, error)) {
    if (read_data_file(file, "data of ours") == text) return file;
    throw DatasetError(fmt::format(
        "--generate: {} exists and holds other data, which is not overwritten; leave out "
        "--generate to train on it, or name another --data-dir",
        file.string()));
  }
  write_data_file(file, text);
  return file;
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
  if (request.generate) return generate_file(request, scratch);
  if (request.directory) return find_file(request);
  throw DatasetError(
      "no data: name a file with --data, a directory with --data-dir, or let --generate write "
      "some");
}

}  // namespace

Dataset obtain_dataset(const DatasetRequest& request, const fs::path& scratch) {
  const fs::path file = choose_file(request, scratch);
  // A file in the scratch directory is gone when somebody could look for it.
  const bool passing = request.generate && !request.directory;
  const std::string origin = passing            ? "generated " + file.filename().string()
                             : request.generate ? file.string() + " (generated)"
                                                : file.string();
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
