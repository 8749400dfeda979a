// Where the training data comes from: a file that the user names, a known name in a directory, or a
// generated file; loaded, checked and prepared for sharing. Runs on the parent's main thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include "reference_trainer/data/cifar.h"
#include "reference_trainer/data/movielens.h"
#include "reference_trainer/data/shared_arrays.h"
#include "reference_trainer/model/workload.h"

namespace syncd::trainer {

// The named place holds no usable data; what() says what to give.
class DatasetError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Names a file or a directory, or says that data is to be generated.
struct DatasetRequest {
  WorkloadKind kind = WorkloadKind::kMf;
  std::optional<std::filesystem::path> file;       // --data
  std::optional<std::filesystem::path> directory;  // --data-dir
  bool generate = false;
  RatingFormat format = RatingFormat::kUData;  // of generated ratings
  // Of images; nothing: CIFAR-10 where they are generated or a file is named, else what is found.
  std::optional<ImageFormat> image_format;
  std::optional<std::size_t> samples;  // to generate; nothing: the workload's default
  std::uint64_t seed = 1;
};

struct Dataset {
  SharedArrays arrays;
  std::string description;  // one line for people: the file, its size in samples, where it is from
};

// Names looked for in a directory, and written into it: u.data or ratings.csv; train.libsvm;
// data_batch_1.bin to data_batch_5.bin (as many as there are, none left out) and test_batch.bin, or
// train.bin and test.bin.
//
// With `generate`, the files are written into the directory (made if need be), or into `scratch`
// where no directory is named. A file that stands there already is used if it has the very bytes
// that would be written, and is otherwise an error: data is never overwritten.
//
// Throws DatasetError, DataError or SharedMemoryError.
Dataset obtain_dataset(const DatasetRequest& request, const std::filesystem::path& scratch);

}  // namespace syncd::trainer
