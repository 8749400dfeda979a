// See http.h.
#include "support/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace syncd::test {

HttpSocket::HttpSocket(const std::string& address, const std::string& from) {
  const std::size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::atoi(address.c_str() + colon + 1)));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in source{};
  source.sin_family = AF_INET;
  if (!from.empty()) {
    inet_pton(AF_INET, from.c_str(), &source.sin_addr);
    if (bind(fd_, reinterpret_cast<sockaddr*>(&source), sizeof source) != 0) {
      close(fd_);
      throw std::runtime_error("cannot connect from " + from);
    }
  }
  if (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    close(fd_);
    throw std::runtime_error("cannot connect to " + address);
  }
}

HttpSocket::~HttpSocket() {
  close(fd_);
}

bool HttpSocket::send(const std::string& bytes) {
  return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

std::string HttpSocket::receive_some(Milliseconds timeout) {
  pollfd waiting{fd_, POLLIN, 0};
  if (poll(&waiting, 1, static_cast<int>(timeout.count())) <= 0) {
    throw std::runtime_error("the admin pages have not answered");
  }
  char bytes[4096];
  const ssize_t count = recv(fd_, bytes, sizeof bytes, 0);
  return count <= 0 ? std::string{} : std::string(bytes, static_cast<std::size_t>(count));
}

std::string HttpSocket::receive_all(Milliseconds timeout) {
  const Deadline deadline(timeout);
  std::string all;
  while (true) {
    const std::string some = receive_some(Milliseconds(deadline.left_ms()));
    if (some.empty()) return all;
    all += some;
  }
}

HttpReply parse_reply(const std::string& bytes) {
  const std::size_t end = bytes.find("\r\n\r\n");
  if (!bytes.starts_with("HTTP/1.1 ") || end == std::string::npos) {
    throw std::runtime_error("this is no HTTP answer: '" + bytes + "'");
  }
  return {std::atoi(bytes.c_str() + 9), bytes.substr(0, end), bytes.substr(end + 4)};
}

HttpReply http_get(const std::string& address, const std::string& path, const std::string& headers,
                   const std::string& method) {
  HttpSocket socket(address);
  socket.send(method + " " + path + " HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n");
  return parse_reply(socket.receive_all());
}

HttpReply https_get(const std::string& address, const std::string& path,
                    const tls::ClientSettings& settings, const std::string& headers,
                    const std::string& from) {
  tls::ClientSettings http = settings;
  http.http = true;
  std::string error;
  const auto context = tls::Context::client(http, error);
  if (context == nullptr) throw std::runtime_error(error);
  HttpSocket socket(address, from);
  std::vector<std::uint8_t> out;
  const auto channel = tls::Channel::connect(context, "127.0.0.1", "admin", out);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n";
  channel->send({reinterpret_cast<const std::uint8_t*>(request.data()), request.size()}, out);
  std::vector<std::uint8_t> plain;
  while (!channel->ended()) {
    socket.send(std::string(out.begin(), out.end()));
    out.clear();
    const std::string some = socket.receive_some();
    if (some.empty()) break;
    if (!channel->receive({reinterpret_cast<const std::uint8_t*>(some.data()), some.size()}, plain,
                          out)) {
      throw std::runtime_error(channel->error());
    }
  }
  return parse_reply(std::string(plain.begin(), plain.end()));
}

double sample(const std::string& metrics, const std::string& series) {
  const std::size_t at = metrics.find("\n" + series + " ");
  return at == std::string::npos ? -1 : std::atof(metrics.c_str() + at + series.size() + 2);
}

}  // namespace syncd::test
