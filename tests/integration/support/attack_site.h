// A daemon with TLS or without, and clients that mean it no good. Use it from the test's main
// thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/daemon.h"
#include "support/raw_tls_client.h"
#include "tests/support/tls_files.h"

namespace syncd::test {

// The parameter: whether there is TLS.
class Attacks : public ::testing::TestWithParam<bool> {
 protected:
  Attacks() { files_.make_server(); }

  bool with_tls() const { return GetParam(); }
  DaemonOptions options(const std::string& more = "",
                        std::vector<std::string> test_limits = {}) const {
    std::string config = more;
    if (with_tls()) {
      config += "[tls]\ncertificate = \"" + files_.certificate("server") + "\"\nkey = \"" +
                files_.key("server") + "\"\n";
    }
    return {.store = "memory",
            .tcp = "127.0.0.1:0",
            .config = config,
            .test_limits = std::move(test_limits)};
  }
  std::unique_ptr<RawClient> client(const Daemon& daemon) const {
    if (!with_tls()) return std::make_unique<RawClient>(daemon.tcp_address());
    return std::make_unique<RawTlsClient>(daemon.tcp_address(),
                                          tls::ClientSettings{files_.ca(), "", ""});
  }

  TempDir directory_;
  TlsFiles files_{directory_.path()};
};

// So many clients that have said who they are and nothing more, while another job goes on.
inline void hold_idle_connections(const Daemon& daemon, std::size_t count,
                                  const std::function<std::unique_ptr<RawClient>()>& make) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < count + 1'100) {
    GTEST_SKIP() << "NOT TESTED: " << count << " connections need " << count + 1'100
                 << " descriptors, and this process may have only " << limit.rlim_cur
                 << " (ulimit -Hn, LimitNOFILE=)";
  }
  Bystander bystander(daemon.address());
  std::vector<std::unique_ptr<RawClient>> idle;
  for (std::size_t i = 0; i < count; ++i) {
    idle.push_back(make());
    idle.back()->hello();
    if (i % 256 == 0) bystander.expect_progress(1);
  }
  bystander.expect_progress(100);
  RawClient asking(daemon.address());
  asking.hello();
  EXPECT_EQ(asking.call_for<wire::StatusReply>(wire::StatusRequest{}).sessions, count + 2);
}

inline std::string name_of_transport(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "OverTls" : "OverTcp";
}

}  // namespace syncd::test
