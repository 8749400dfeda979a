// A socket that takes IPv4 and IPv6, such as a service manager opens for [::]: who comes by IPv4
// counts as the machine that it is, not as one of a network of IPv6.
#include <arpa/inet.h>

#include "tests/unit/net/net_fixture.h"

namespace syncd::net {
namespace {

class DualStackTest : public NetTest {
 protected:
  // The port; 0: this machine has no IPv6.
  std::uint16_t listen_on_both() {
    ListenSocket socket;
    socket.is_tcp = true;
    socket.endpoint = "tcp:[::]:0";
    socket.fd.reset(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int off = 0;
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    socklen_t length = sizeof address;
    if (socket.fd.get() < 0 ||
        setsockopt(socket.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
        bind(socket.fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
      return 0;
    }
    EXPECT_EQ(::listen(socket.fd.get(), 16), 0);
    getsockname(socket.fd.get(), reinterpret_cast<sockaddr*>(&address), &length);
    std::string error;
    EXPECT_TRUE(network_->listen(std::move(socket), error)) << error;
    return ntohs(address.sin6_port);
  }
  // Greets from one of this machine's addresses; -1: it was not served.
  int greet(const char* from, std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, from, &address.sin_addr);
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << from;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << from;
    const auto hello =
        RawClient::frame({1, wire::Hello{kProtocolMin, kProtocolMax, "test", "1", ""}});
    ::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL);
    const std::uint32_t sessions = network_->stats().sessions;
    const std::uint64_t refused = refusals();
    EXPECT_TRUE(
        run_until([&] { return network_->stats().sessions > sessions || refusals() > refused; }));
    if (network_->stats().sessions > sessions) return fd;
    ::close(fd);
    return -1;
  }
  std::uint64_t refusals() const {
    return network_->stats().refused[static_cast<std::size_t>(Refusal::kMachineMax)];
  }
};

TEST_F(DualStackTest, WhoComesByIpv4IsAMachineOfItsOwnAndKnownToBeHere) {
  NetworkOptions options;
  options.connections_per_machine_max = 1;
  start(options);
  const std::uint16_t port = listen_on_both();
  if (port == 0) GTEST_SKIP() << "this machine has no IPv6";
  std::vector<ConnectionId> ids;
  handler_.answer = [&](ConnectionId id, const wire::Message&) { ids.push_back(id); };
  const int first = greet("127.0.0.1", port);
  ASSERT_GE(first, 0);
  const int second = greet("127.0.0.2", port);
  EXPECT_GE(second, 0) << "another machine has taken its place";
  EXPECT_EQ(greet("127.0.0.1", port), -1) << "the limit is of no use";
  const auto request = RawClient::frame(begin_message(2));
  ::send(first, request.data(), request.size(), MSG_NOSIGNAL);
  ASSERT_TRUE(run_until([&] { return !ids.empty(); }));
  EXPECT_TRUE(network_->is_here(ids[0]));
  EXPECT_EQ(network_->peer(ids[0]).substr(0, 10), "127.0.0.1:");
  ::close(first);
  if (second >= 0) ::close(second);
}

}  // namespace
}  // namespace syncd::net
