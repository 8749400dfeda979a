// How many reads of history may stand at once, of one client and of all.
#include "daemon/edge/server/history_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <uv.h>

#include <vector>

#include "daemon/edge/net/loop_guard.h"
#include "tests/unit/server/fake_store.h"

namespace syncd::server {
namespace {

using ::testing::HasSubstr;

// Answers come as the loop turns, which it does at the end of a test alone.
class HistoryReadsTest : public ::testing::Test {
 protected:
  HistoryReadsTest() { uv_loop_init(&loop_); }
  ~HistoryReadsTest() override {
    finish();
    uv_loop_close(&loop_);
  }

  // The answer, if it came at once.
  const wire::Body* read(const std::string& client) {
    const std::size_t before = answers_.size();
    reads_.read(client, 1, {}, [this](wire::Body body) { answers_.push_back(std::move(body)); });
    return answers_.size() == before ? nullptr : &answers_.back();
  }
  void finish() { net::run_loop(&loop_); }

  uv_loop_t loop_;
  FakeStore store_;
  Background background_{&loop_};
  HistoryReads reads_{background_, store_};
  std::vector<wire::Body> answers_;
};

TEST_F(HistoryReadsTest, OneClientHasSoManyAtOnceAndAnotherOneItsOwn) {
  for (std::size_t i = 0; i < HistoryReads::kPerClientMax; ++i) EXPECT_EQ(read("a"), nullptr);
  const wire::Body* refused = read("a");
  ASSERT_NE(refused, nullptr);
  const auto* error = std::get_if<wire::Error>(refused);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->status, Status::kLimit);
  EXPECT_THAT(error->message, HasSubstr("reads 16 histories for this client already"));
  EXPECT_EQ(read("b"), nullptr);
  finish();
  EXPECT_EQ(answers_.size(), HistoryReads::kPerClientMax + 2);
  EXPECT_EQ(read("a"), nullptr) << "those before have been answered";
}

TEST_F(HistoryReadsTest, AllTogetherHaveSoManyAtOnce) {
  for (std::size_t i = 0; i < HistoryReads::kMax; ++i) {
    EXPECT_EQ(read("client " + std::to_string(i / HistoryReads::kPerClientMax)), nullptr);
  }
  const wire::Body* refused = read("one more");
  ASSERT_NE(refused, nullptr);
  const auto* error = std::get_if<wire::Error>(refused);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->status, Status::kLimit);
  EXPECT_THAT(error->message, HasSubstr("reads 256 histories for its clients already"));
  finish();
  EXPECT_EQ(answers_.size(), HistoryReads::kMax + 1);
  EXPECT_EQ(read("one more"), nullptr);
}

TEST_F(HistoryReadsTest, AStoreThatCannotBeReadIsNamed) {
  EXPECT_EQ(read("a"), nullptr);
  finish();
  ASSERT_EQ(answers_.size(), 1U);
  const auto* error = std::get_if<wire::Error>(&answers_[0]);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->status, Status::kStore);
  EXPECT_EQ(error->message, "this store cannot be read");
}

}  // namespace
}  // namespace syncd::server
