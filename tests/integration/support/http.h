// One HTTP request to the admin pages, over a plain socket or TLS; blocking, with a deadline.
// Failures throw.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/transport/tls.h"
#include "support/deadline.h"

namespace syncd::test {

class HttpSocket {
 public:
  // `address`: "127.0.0.1:PORT". `from`: as another machine, any address that begins with 127.
  explicit HttpSocket(const std::string& address, const std::string& from = "");
  ~HttpSocket();
  HttpSocket(const HttpSocket&) = delete;
  HttpSocket& operator=(const HttpSocket&) = delete;
  // False: the other side has closed it.
  bool send(const std::string& bytes);
  // Everything until the other side closes it.
  std::string receive_all(Milliseconds timeout = kPatience);
  // What has come within a wait of that much; empty at the end.
  std::string receive_some(Milliseconds timeout = kPatience);

 private:
  int fd_ = -1;
};

struct HttpReply {
  int status = 0;
  std::string head;
  std::string body;
};
HttpReply parse_reply(const std::string& bytes);

// `headers`: whole lines with their ends.
HttpReply http_get(const std::string& address, const std::string& path,
                   const std::string& headers = "", const std::string& method = "GET");
HttpReply https_get(const std::string& address, const std::string& path,
                    const tls::ClientSettings& settings, const std::string& headers = "",
                    const std::string& from = "");

// The value of a sample such as "syncd_jobs" or "syncd_job_epoch{job_name=\"a\"}"; -1: there is
// none.
double sample(const std::string& metrics, const std::string& series);

}  // namespace syncd::test
