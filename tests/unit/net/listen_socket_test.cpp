#include "daemon/edge/net/listen_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace syncd::net {
namespace {

class ListenSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/syncd-listen-test-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    directory_ = directory;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  std::string directory_;
  std::string error_;
};

mode_t mode_of(const std::string& path) {
  struct stat found {};
  EXPECT_EQ(stat(path.c_str(), &found), 0) << path;
  return found.st_mode & 0777;
}

TEST_F(ListenSocketTest, MakesTheSocketAndItsDirectoryWithTheirPermissions) {
  ListenSocket socket;
  ASSERT_TRUE(open_unix_socket(path("run/s"), 0660, socket, error_)) << error_;
  EXPECT_EQ(mode_of(path("run")), 0700U);
  EXPECT_EQ(mode_of(path("run/s")), 0660U);
  EXPECT_EQ(socket.endpoint, "unix:" + path("run/s"));
  remove_unix_socket(socket);
  EXPECT_FALSE(std::filesystem::exists(path("run/s")));
}

TEST_F(ListenSocketTest, ReplacesASocketThatNobodyAnswersAnyMore) {
  {
    ListenSocket crashed;
    ASSERT_TRUE(open_unix_socket(path("s"), 0600, crashed, error_)) << error_;
  }
  ASSERT_TRUE(std::filesystem::exists(path("s")));
  ListenSocket socket;
  ASSERT_TRUE(open_unix_socket(path("s"), 0600, socket, error_)) << error_;
}

TEST_F(ListenSocketTest, RefusesASocketThatIsInUse) {
  ListenSocket first;
  ASSERT_TRUE(open_unix_socket(path("s"), 0600, first, error_)) << error_;
  ListenSocket second;
  EXPECT_FALSE(open_unix_socket(path("s"), 0600, second, error_));
  EXPECT_NE(error_.find("another process listens on " + path("s")), std::string::npos) << error_;
  EXPECT_TRUE(std::filesystem::exists(path("s")));
}

// Whoever may read the directory can lock it.
TEST_F(ListenSocketTest, DoesNotWaitForEverForTheDirectory) {
  const UniqueFd other(open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
  ListenSocket socket;
  EXPECT_FALSE(open_unix_socket(path("s"), 0600, socket, error_, 0));
  EXPECT_EQ(error_, "cannot lock the directory of " + path("s") +
                        ": another process has it locked (see lslocks)");
  ASSERT_EQ(flock(other.get(), LOCK_UN), 0);
  EXPECT_TRUE(open_unix_socket(path("s"), 0600, socket, error_, 0)) << error_;
}

TEST_F(ListenSocketTest, RefusesAFileThatIsNoSocket) {
  std::ofstream(path("s")) << "precious";
  ListenSocket socket;
  EXPECT_FALSE(open_unix_socket(path("s"), 0600, socket, error_));
  EXPECT_NE(error_.find("is not a socket"), std::string::npos) << error_;
  EXPECT_TRUE(std::filesystem::is_regular_file(path("s")));
}

TEST_F(ListenSocketTest, RefusesAPathThatCannotBe) {
  ListenSocket socket;
  EXPECT_FALSE(open_unix_socket(path(std::string(120, 'x')), 0600, socket, error_));
  EXPECT_NE(error_.find("107 are allowed"), std::string::npos) << error_;
  EXPECT_FALSE(open_unix_socket(path("missing/too/s"), 0600, socket, error_));
  EXPECT_NE(error_.find("cannot make the directory " + path("missing/too")), std::string::npos)
      << error_;
}

TEST_F(ListenSocketTest, LeavesASocketAloneThatSomebodyElsePutThere) {
  ListenSocket first;
  ASSERT_TRUE(open_unix_socket(path("s"), 0600, first, error_)) << error_;
  ASSERT_EQ(unlink(path("s").c_str()), 0);
  std::ofstream(path("s")) << "other";
  remove_unix_socket(first);
  EXPECT_TRUE(std::filesystem::exists(path("s")));
}

TEST_F(ListenSocketTest, TcpPortZeroNamesTheChosenPort) {
  std::vector<ListenSocket> sockets;
  ASSERT_TRUE(open_tcp_sockets({"127.0.0.1", 0}, sockets, error_)) << error_;
  ASSERT_EQ(sockets.size(), 1U);
  EXPECT_TRUE(sockets[0].endpoint.starts_with("tcp:127.0.0.1:"));
  EXPECT_NE(sockets[0].endpoint, "tcp:127.0.0.1:0");
}

TEST_F(ListenSocketTest, TcpPortInUseIsNamed) {
  std::vector<ListenSocket> sockets;
  ASSERT_TRUE(open_tcp_sockets({"127.0.0.1", 0}, sockets, error_)) << error_;
  TcpAddress taken;
  ASSERT_TRUE(parse_tcp_address(sockets[0].endpoint.substr(4), taken, error_)) << error_;
  EXPECT_FALSE(open_tcp_sockets(taken, sockets, error_));
  EXPECT_NE(error_.find(taken.text()), std::string::npos) << error_;
  EXPECT_NE(error_.find("has this port: stop it, or choose another"), std::string::npos) << error_;
  EXPECT_EQ(sockets.size(), 1U);
}

TEST_F(ListenSocketTest, TcpAddressOfAnotherMachineIsRefused) {
  std::vector<ListenSocket> sockets;
  EXPECT_FALSE(open_tcp_sockets({"192.0.2.1", 0}, sockets, error_));
  EXPECT_NE(error_.find("192.0.2.1"), std::string::npos) << error_;
  EXPECT_NE(error_.find("no such address"), std::string::npos) << error_;
}

}  // namespace
}  // namespace syncd::net
