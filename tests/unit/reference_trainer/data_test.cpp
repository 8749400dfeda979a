// The loaders of u.data, ratings.csv and libsvm files: good files, truncated ones, malformed ones,
// and what each error says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "reference_trainer/data/data_file.h"
#include "reference_trainer/data/dataset.h"
#include "reference_trainer/data/libsvm.h"
#include "reference_trainer/data/movielens.h"
#include "reference_trainer/run/process.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

RatingData ratings(std::string_view text) {
  return parse_ratings("dir/u.data", text);
}
ExampleData examples(std::string_view text) {
  return parse_libsvm("dir/train.libsvm", text);
}

std::string rating_error(std::string_view text) {
  return error_of<DataError>([&] { ratings(text); });
}
std::string example_error(std::string_view text) {
  return error_of<DataError>([&] { examples(text); });
}

TEST(Movielens, ReadsUDataAndRenumbersIdsInAscendingOrder) {
  const RatingData data = ratings("196\t242\t3\t881250949\n22\t377\t1\t878887116\n196\t51\t5\t0\n");
  EXPECT_EQ(data.users, 2U);
  EXPECT_EQ(data.items, 3U);
  EXPECT_THAT(data.user, ElementsAre(1, 0, 1));
  EXPECT_THAT(data.item, ElementsAre(1, 2, 0));
  EXPECT_THAT(data.rating, ElementsAre(3.0F, 1.0F, 5.0F));
}

TEST(Movielens, ReadsRatingsCsvWithHalfStarsAndWindowsLineEnds) {
  const RatingData data = ratings(
      "userId,movieId,rating,timestamp\r\n1,110,1.0,1425941529\r\n1,147,4.5,1425942435\r\n");
  EXPECT_EQ(data.users, 1U);
  EXPECT_THAT(data.item, ElementsAre(0, 1));
  EXPECT_THAT(data.rating, ElementsAre(1.0F, 4.5F));
}

TEST(Movielens, ATruncatedFileIsAnErrorEvenWhereItsLastLineParses) {
  // The last timestamp lost its last digits: every field is still a number.
  EXPECT_THAT(rating_error("1\t2\t3\t881250949\n2\t2\t3\t8812"),
              AllOf(StartsWith("dir/u.data:2: "), HasSubstr("cut off"), HasSubstr("newline")));
  EXPECT_THAT(rating_error("1\t2\t3\t881250949\n2\t2"), StartsWith("dir/u.data:2: "));
}

TEST(Movielens, AMissingFieldNamesTheExpectedOnes) {
  EXPECT_THAT(rating_error("1\t2\t3\t4\n1\t2\t3\n"),
              AllOf(StartsWith("dir/u.data:2: has 3 fields"), HasSubstr("'1\\t2\\t3'"),
                    HasSubstr("user, item, rating, timestamp")));
  EXPECT_THAT(rating_error("1,2,3,4\n"), HasSubstr("has 1 field ('1,2,3,4'); expected 4 separated "
                                                   "by tabs"));
  EXPECT_THAT(rating_error("userId,movieId,rating,timestamp\n1,2,3,4,5\n"),
              HasSubstr("userId, movieId, rating, timestamp"));
}

TEST(Movielens, RatingsOffTheScaleSayWhichScale) {
  EXPECT_THAT(rating_error("1\t2\t6\t4\n"),
              HasSubstr("rating '6' is not allowed; allowed: 1, 2, 3, 4, 5"));
  EXPECT_THAT(rating_error("1\t2\t0\t4\n"), HasSubstr("rating '0'"));
  EXPECT_THAT(rating_error("1\t2\t3.5\t4\n"), HasSubstr("rating '3.5'"));
  EXPECT_THAT(rating_error("1\t2\tnan\t4\n"), HasSubstr("rating 'nan'"));
  EXPECT_THAT(rating_error("userId,movieId,rating,timestamp\n1,2,3.7,4\n"),
              HasSubstr("rating '3.7' is not allowed; allowed: 0.5 to 5.0 in steps of 0.5"));
}

TEST(Movielens, BadIdsAndTimestampsAreNamed) {
  EXPECT_THAT(rating_error("0\t2\t3\t4\n"), HasSubstr("user '0' is not an id"));
  EXPECT_THAT(rating_error("1\t-2\t3\t4\n"), HasSubstr("item '-2' is not an id"));
  EXPECT_THAT(rating_error("1\t99999999999999999999\t3\t4\n"), HasSubstr("1 to 2000000000"));
  EXPECT_THAT(rating_error("1\t2\t3\tnow\n"), HasSubstr("timestamp 'now'"));
}

TEST(Movielens, AnUnknownHeaderOrAHeaderAloneIsRefused) {
  EXPECT_THAT(rating_error("userId,movieId,tag,timestamp\n"),
              AllOf(StartsWith("dir/u.data:1: "), HasSubstr("userId,movieId,rating,timestamp")));
  EXPECT_THAT(rating_error("userId,movieId,rating,timestamp\n"), HasSubstr("no ratings"));
}

TEST(Movielens, BinaryJunkIsShownEscapedAndCut) {
  const std::string error =
      rating_error(std::string("\x00\x01\xff", 3) + std::string(100, 'x') + "\n");
  EXPECT_THAT(error, HasSubstr("'\\x00\\x01\\xffxxx"));
  EXPECT_THAT(error, HasSubstr("'..."));
  EXPECT_LT(error.size(), 200U);
}

TEST(Libsvm, ReadsSparseExamplesWithCommentsAndTrailingSpace) {
  const ExampleData data = examples("# two classes\n+1 1:0.5 7:-2 \n-1\n-1 3:1e-3  4:+2 # note\n");
  EXPECT_EQ(data.features, 7U);
  EXPECT_THAT(data.row_start, ElementsAre(0, 2, 2, 4));
  EXPECT_THAT(data.column, ElementsAre(0, 6, 2, 3));
  EXPECT_THAT(data.value, ElementsAre(0.5F, -2.0F, 1e-3F, 2.0F));
  EXPECT_THAT(data.label, ElementsAre(1.0F, -1.0F, -1.0F));
}

TEST(Libsvm, TakesTheThreeUsualPairsOfLabels) {
  EXPECT_THAT(examples("0 1:1\n1 1:1\n").label, ElementsAre(-1.0F, 1.0F));
  EXPECT_THAT(examples("2 1:1\n1 1:1\n").label, ElementsAre(1.0F, -1.0F));
  EXPECT_THAT(examples("1 1:1\n-1 1:1\n").label, ElementsAre(1.0F, -1.0F));
}

TEST(Libsvm, OtherLabelsAreRefusedWithTheAllowedOnes) {
  EXPECT_THAT(example_error("1 1:1\n3 1:1\n"),
              AllOf(StartsWith("dir/train.libsvm:2: label '3'"), HasSubstr("-1 and +1, 0 and 1")));
  EXPECT_THAT(example_error("-1 1:1\n0 1:1\n"), HasSubstr("does not go with the label -1"));
  EXPECT_THAT(example_error("0 1:1\n1 1:1\n2 1:1\n"), StartsWith("dir/train.libsvm:3: "));
  EXPECT_THAT(example_error("1 1:1\n1 2:1\n"), HasSubstr("every label is 1; expected two classes"));
}

TEST(Libsvm, MalformedFeaturesAreNamed) {
  EXPECT_THAT(example_error("1 5\n"), HasSubstr("'5' is not INDEX:VALUE"));
  EXPECT_THAT(example_error("1 0:1\n"), HasSubstr("feature index '0' is not allowed"));
  EXPECT_THAT(example_error("1 2:1 2:1\n"), HasSubstr("feature index 2 follows 2"));
  EXPECT_THAT(example_error("1 9:1 3:1\n"), HasSubstr("indices must ascend"));
  EXPECT_THAT(example_error("1 3:x\n"), HasSubstr("the value 'x' of feature 3"));
  EXPECT_THAT(example_error("1 3:inf\n"), HasSubstr("any finite number"));
  EXPECT_THAT(example_error("1 3:1e39\n"), HasSubstr("any finite number"));
  EXPECT_THAT(example_error("1 60000000:1\n"), HasSubstr("1 to 50000000"));
  EXPECT_THAT(example_error("1 1:1\n\n"), StartsWith("dir/train.libsvm:2: the line is empty"));
}

TEST(Libsvm, TruncatedAndEmptyFilesAreRefused) {
  EXPECT_THAT(example_error("1 1:1\n-1 2:0.2"),
              AllOf(StartsWith("dir/train.libsvm:2: "), HasSubstr("cut off")));
  EXPECT_THAT(example_error("# nothing\n"), HasSubstr("holds no example"));
  EXPECT_THAT(example_error("1\n-1\n"), HasSubstr("no example has a feature"));
}

TEST(DataFile, MissingEmptyAndWrongKindsOfFilesSaySo) {
  const TemporaryDirectory place;
  const auto missing = place.path() / "none";
  EXPECT_THAT(error_of<DataError>([&] { load_ratings(missing); }),
              HasSubstr("none: cannot be opened: No such file"));
  EXPECT_THAT(error_of<DataError>([&] { load_ratings(place.path()); }),
              HasSubstr("is not a regular file; expected MovieLens ratings"));
  write_data_file(place.path() / "empty", "");
  EXPECT_THAT(error_of<DataError>([&] { load_libsvm(place.path() / "empty"); }),
              HasSubstr("is empty; expected libsvm examples"));
  EXPECT_THAT(error_of<DataError>([&] { write_data_file(place.path() / "no" / "file", "x"); }),
              HasSubstr("cannot be created"));
}

TEST(Dataset, GeneratesIntoTheDirectoryAndReusesItsOwnFileButNeverOverwrites) {
  const TemporaryDirectory place;
  DatasetRequest request;
  request.kind = WorkloadKind::kMf;
  request.directory = place.path() / "new";
  request.generate = true;
  request.samples = 1'000;
  obtain_dataset(request, place.path());
  const auto file = place.path() / "new" / "u.data";
  const auto written = read_data_file(file, "");
  obtain_dataset(request, place.path());
  EXPECT_EQ(read_data_file(file, ""), written);

  request.seed = 2;
  EXPECT_THAT(error_of<DatasetError>([&] { obtain_dataset(request, place.path()); }),
              AllOf(HasSubstr("u.data exists and holds other data"), HasSubstr("--data-dir")));
  EXPECT_EQ(read_data_file(file, ""), written);

  request.generate = false;
  EXPECT_THAT(obtain_dataset(request, place.path()).description, HasSubstr("1000 ratings"));
}

TEST(Dataset, SaysWhatToGiveWhenThereIsNoData) {
  const TemporaryDirectory place;
  DatasetRequest request;
  EXPECT_THAT(error_of<DatasetError>([&] { obtain_dataset(request, place.path()); }),
              AllOf(HasSubstr("--data"), HasSubstr("--generate")));
  request.directory = place.path();
  EXPECT_THAT(error_of<DatasetError>([&] { obtain_dataset(request, place.path()); }),
              HasSubstr("holds no u.data or ratings.csv"));
  request.file = place.path() / "one";
  write_data_file(*request.file, "1\t1\t1\t1\n");
  EXPECT_THAT(error_of<DataError>([&] { obtain_dataset(request, place.path()); }),
              HasSubstr("holds one sample"));
}

}  // namespace
}  // namespace syncd::trainer
