// Exceptions of callbacks: they end the loop, and come out where it is run.
#include "daemon/edge/net/loop_guard.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include "proto/base/check.h"

namespace syncd::net {
namespace {

class LoopGuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(uv_loop_init(&loop_), 0);
    ASSERT_EQ(uv_timer_init(&loop_, &first_), 0);
    ASSERT_EQ(uv_timer_init(&loop_, &second_), 0);
    first_.data = second_.data = &calls_;
  }
  void TearDown() override {
    close_all_handles(&loop_);
    EXPECT_EQ(uv_loop_close(&loop_), 0) << "a handle was not closed";
    loop_failure = nullptr;
  }
  static constexpr auto kThrow = [](uv_timer_t* timer) {
    ++*static_cast<int*>(timer->data);
    SYNCD_CHECK(timer == nullptr);
  };

  uv_loop_t loop_{};
  uv_timer_t first_{};
  uv_timer_t second_{};
  int calls_ = 0;
};

TEST_F(LoopGuardTest, WhatACallbackThrowsComesOutOfTheLoop) {
  uv_timer_start(&first_, guarded(kThrow), 0, 0);
  try {
    run_loop(&loop_);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const InternalError& failure) {
    EXPECT_NE(std::string(failure.what()).find("timer == nullptr (loop_guard_test.cpp:"),
              std::string::npos)
        << failure.what();
  }
}

// Both are due in the same turn; what the second works on may be between two states.
TEST_F(LoopGuardTest, AfterThatNoOtherIsCalled) {
  uv_timer_start(&first_, guarded(kThrow), 0, 0);
  uv_timer_start(&second_, guarded(kThrow), 0, 0);
  EXPECT_THROW(run_loop(&loop_), InternalError);
  EXPECT_EQ(calls_, 1);
}

TEST_F(LoopGuardTest, ALoopInWhichNothingIsThrownRunsToItsEnd) {
  uv_timer_start(&first_, guarded([](uv_timer_t* timer) { ++*static_cast<int*>(timer->data); }), 0,
                 0);
  run_loop(&loop_);
  EXPECT_EQ(calls_, 1);
}

// A polled socket, too, which libuv does not close by itself.
TEST_F(LoopGuardTest, ClosingAllHandlesClosesTheirSockets) {
  std::array<int, 2> polled{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, polled.data()), 0);
  std::array<int, 2> opened{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, opened.data()), 0);
  uv_poll_t poll{};
  ASSERT_EQ(uv_poll_init(&loop_, &poll, polled[0]), 0);
  uv_poll_start(&poll, UV_READABLE, [](uv_poll_t*, int, int) {});
  uv_pipe_t pipe{};
  ASSERT_EQ(uv_pipe_init(&loop_, &pipe, 0), 0);
  ASSERT_EQ(uv_pipe_open(&pipe, opened[0]), 0);
  uv_timer_start(&first_, guarded(kThrow), 0, 0);
  EXPECT_THROW(run_loop(&loop_), InternalError);
  close_all_handles(&loop_);
  for (const int other : {polled[1], opened[1]}) {
    char byte = 0;
    EXPECT_EQ(recv(other, &byte, 1, 0), 0) << "the other side sees the end";
    ::close(other);
  }
}

}  // namespace
}  // namespace syncd::net
