// What open_etcd() refuses before any endpoint is asked, and how it finds its module.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "daemon/edge/cluster/etcd.h"
#include "support/files.h"
#include "tests/support/tls_files.h"

namespace syncd::test {
namespace {

using cluster::EtcdOptions;
using cluster::open_etcd;

std::string refusal(const EtcdOptions& options) {
  std::string error;
  EXPECT_EQ(open_etcd(options, error), nullptr);
  return error;
}

testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in '" << text << "'";
}

EtcdOptions good() {
  EtcdOptions options;
  options.endpoints = {"http://127.0.0.1:2379"};
  return options;
}

TEST(OpenEtcd, NamesAnEndpointThatIsNone) {
  for (const std::string wrong :
       {"", "127.0.0.1:2379", "ftp://127.0.0.1:2379", "HTTP://127.0.0.1:2379", "http://",
        "http://127.0.0.1", "http://:2379", "http://127.0.0.1:", "http://127.0.0.1:0",
        "http://127.0.0.1:65536", "http://127.0.0.1:2379/", "http://a,b:2379", "http://::1:2379",
        "http://user@host:2379", "unix:/run/etcd.sock", "http://[]:2379", "http://a b:2379"}) {
    EtcdOptions options = good();
    options.endpoints.push_back(wrong);
    const std::string error = refusal(options);
    EXPECT_TRUE(has(error, "'" + wrong + "'"));
    EXPECT_TRUE(has(error, "http://HOST:PORT and https://HOST:PORT"));
  }
  EXPECT_TRUE(has(refusal({}), "cluster.etcd is empty"));
}

TEST(OpenEtcd, NamesAFileThatCannotBeRead) {
  TempDir directory;
  const TlsFiles files(directory.path());
  files.make_client("member", {"member"});
  const auto with = [&](std::string EtcdOptions::*option, const std::string& path) {
    EtcdOptions options = good();
    options.ca_file = files.ca();
    options.certificate_file = files.certificate("member");
    options.key_file = files.key("member");
    options.*option = path;
    return refusal(options);
  };
  const std::string missing = directory.file("missing");
  EXPECT_TRUE(
      has(with(&EtcdOptions::ca_file, missing), "cluster.ca: " + missing + ": No such file"));
  EXPECT_TRUE(has(with(&EtcdOptions::certificate_file, missing), "cluster.certificate: " + missing));
  EXPECT_TRUE(has(with(&EtcdOptions::key_file, missing), "cluster.key: " + missing));
  EXPECT_TRUE(
      has(with(&EtcdOptions::ca_file, directory.path()), "cluster.ca: " + directory.path()));
  const std::string empty = directory.file("empty");
  write_file(empty, "");
  EXPECT_TRUE(has(with(&EtcdOptions::ca_file, empty), "it holds no PEM text"));
  EXPECT_TRUE(has(with(&EtcdOptions::key_file, ""), "but cluster.key is not: set both or neither"));
  EXPECT_TRUE(has(with(&EtcdOptions::certificate_file, ""),
                  "but cluster.certificate is not: set both or neither"));
  write_private_file(directory.file("open.key"), read_file(files.key("member")), 0644);
  EXPECT_TRUE(has(with(&EtcdOptions::key_file, directory.file("open.key")), "chmod 0600"));
}

TEST(OpenEtcd, NeverRepeatsAPassword) {
  EtcdOptions options = good();
  options.password = "a-secret-of-the-test";
  const std::string error = refusal(options);
  EXPECT_TRUE(has(error, "a password for etcd is set"));
  EXPECT_FALSE(has(error, options.password));
}

class OpenEtcdModule : public testing::Test {
 protected:
  void TearDown() override { unsetenv("SYNCD_ETCD_MODULE"); }
  static std::string refusal_of(const std::string& module) {
    setenv("SYNCD_ETCD_MODULE", module.c_str(), 1);
    return refusal(good());
  }
  TempDir directory_;
};

TEST_F(OpenEtcdModule, IsNamedWhereItIsMissingOrNone) {
  const std::string missing = directory_.file("missing.so");
  EXPECT_EQ(refusal_of(missing), "SYNCD_ETCD_MODULE names " + missing + ", which is not there");
  const std::string text = directory_.file("text.so");
  write_file(text, "text");
  EXPECT_TRUE(has(refusal_of(text), text));
  EXPECT_TRUE(has(refusal_of(SYNCD_TEST_NO_MODULE), "syncd_cluster_open_etcd"));
}

TEST_F(OpenEtcdModule, OfAnotherBuildIsRefused) {
  const std::string error = refusal_of(SYNCD_TEST_OTHER_MODULE);
  EXPECT_TRUE(has(error, SYNCD_TEST_OTHER_MODULE));
  EXPECT_TRUE(has(error, "of another build of syncd (another build, and this is "));
  EXPECT_TRUE(has(error, "install syncd and syncd-cluster of the same version"));
}

#ifdef SYNCD_TEST_HAS_CLUSTER
TEST_F(OpenEtcdModule, OfThisBuildIsFoundBesideTheProgram) {
  EtcdOptions options = good();
  options.endpoints = {"http://etcd-1.example:2379", "https://[::1]:2379"};
  std::string error;
  EXPECT_NE(open_etcd(options, error), nullptr) << error;
}
#else
TEST_F(OpenEtcdModule, SaysWhatToInstall) {
  EXPECT_TRUE(has(refusal(good()), "install it, or set SYNCD_ETCD_MODULE"));
  EXPECT_TRUE(has(refusal(good()), "the package syncd-cluster"));
}
#endif

}  // namespace
}  // namespace syncd::test
