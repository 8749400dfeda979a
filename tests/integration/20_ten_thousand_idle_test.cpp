// Ten thousand connections that are idle. Needs as many descriptors, and some seconds.
#include "support/attack_site.h"

namespace syncd::test {
namespace {

class ManyIdle : public Attacks {};

TEST_P(ManyIdle, TenThousandConnectionsCostOthersNothing) {
  Daemon daemon(directory_, options("[timeouts]\nheartbeat_timeout = \"10m\"\n"
                                    "[limits]\nhandshakes_per_machine_per_s = 0\n"));
  hold_idle_connections(daemon, 10'000, [&] { return client(daemon); });
}

INSTANTIATE_TEST_SUITE_P(, ManyIdle, ::testing::Bool(), name_of_transport);

}  // namespace
}  // namespace syncd::test
