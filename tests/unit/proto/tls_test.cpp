// Two channels, or one and a raw peer made of OpenSSL itself, that hand each other bytes in memory:
// no socket, no thread.
#include "proto/transport/tls.h"

#include <gmock/gmock.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <ctime>
#include <functional>

#include "proto/wire/wire.h"
#include "tests/integration/support/files.h"
#include "tests/support/random.h"
#include "tests/support/tls_files.h"

namespace syncd::tls {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}
std::string text_of(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

// One end, and what has come out of it.
struct End {
  std::unique_ptr<Channel> channel;
  Bytes out;    // for the other end
  Bytes heard;  // what the other end said
};

// Hands each end's bytes to the other, in pieces of `piece` bytes, until nobody has anything to
// say.
void exchange(End& a, End& b, std::size_t piece = SIZE_MAX) {
  while (!a.out.empty() || !b.out.empty()) {
    for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
      const Bytes moving = std::exchange(from->out, {});
      for (std::size_t at = 0; at < moving.size();) {
        const std::size_t size = std::min(piece, moving.size() - at);
        to->channel->receive(std::span(moving).subspan(at, size), to->heard, to->out);
        at += size;
      }
    }
  }
}

class Tls : public ::testing::Test {
 protected:
  Tls() {
    files_.make_server();
    files_.make_client("worker", {"worker-7.example", "spiffe://cluster/worker-7"});
  }

  ServerSettings server_settings(bool wants_certificate = false) const {
    ServerSettings settings{files_.certificate("server"), files_.key("server"), "", false};
    if (wants_certificate) settings.client_ca_file = files_.ca();
    settings.require_client_certificate = wants_certificate;
    return settings;
  }
  ClientSettings client_settings(const std::string& certificate = "") const {
    ClientSettings settings{files_.ca(), "", ""};
    if (!certificate.empty()) {
      settings.certificate_file = files_.certificate(certificate);
      settings.key_file = files_.key(certificate);
    }
    return settings;
  }
  static std::shared_ptr<Context> made(std::shared_ptr<Context> context, const std::string& error) {
    if (context == nullptr) throw std::runtime_error(error);
    return context;
  }
  static std::shared_ptr<Context> server(const ServerSettings& settings) {
    std::string error;
    return made(Context::server(settings, error), error);
  }
  static std::shared_ptr<Context> client(const ClientSettings& settings) {
    std::string error;
    return made(Context::client(settings, error), error);
  }
  static End accept(const std::shared_ptr<Context>& context) {
    return {Channel::accept(context), {}, {}};
  }
  static End connect(const std::shared_ptr<Context>& context,
                     const std::string& host = "127.0.0.1") {
    End end;
    end.channel = Channel::connect(context, host, host + ":7117", end.out);
    return end;
  }
  // Both ends after whatever handshake they are capable of.
  std::pair<End, End> shaken(const ServerSettings& server_side, const ClientSettings& client_side,
                             const std::string& host = "127.0.0.1") {
    std::pair<End, End> ends{accept(server(server_side)), connect(client(client_side), host)};
    exchange(ends.first, ends.second);
    return ends;
  }

  test::TempDir directory_;
  test::TlsFiles files_{directory_.path()};
};

void say(End& from, std::string_view text) {
  ASSERT_TRUE(from.channel->send(bytes_of(text), from.out)) << from.channel->error();
}

TEST_F(Tls, BothEndsHearWhatTheOtherSays) {
  auto [server, client] = shaken(server_settings(), client_settings());
  ASSERT_TRUE(server.channel->established()) << server.channel->error();
  ASSERT_TRUE(client.channel->established()) << client.channel->error();
  say(client, "question");
  EXPECT_EQ(text_of(client.out).find("question"), std::string::npos) << "it is sealed";
  say(server, "answer");
  exchange(server, client);
  EXPECT_EQ(text_of(server.heard), "question");
  EXPECT_EQ(text_of(client.heard), "answer");
  EXPECT_THAT(server.channel->peer_names(), IsEmpty());
}

TEST_F(Tls, WhatIsSentBeforeTheHandshakeIsOverIsKept) {
  End server = accept(this->server(server_settings()));
  End client = connect(this->client(client_settings()));
  const Bytes first = client.out;
  say(client, "hello");
  EXPECT_EQ(client.out, first) << "nothing of it leaves before there is a key";
  exchange(server, client);
  EXPECT_EQ(text_of(server.heard), "hello");
}

TEST_F(Tls, BytesMayComeOneAtATime) {
  End server = accept(this->server(server_settings(true)));
  End client = connect(this->client(client_settings("worker")));
  say(client, "a");
  exchange(server, client, 1);
  say(client, "b");
  say(server, "c");
  exchange(server, client, 1);
  EXPECT_EQ(text_of(server.heard), "ab");
  EXPECT_EQ(text_of(client.heard), "c");
}

TEST_F(Tls, LargeAmountsPassWhole) {
  auto [server, client] = shaken(server_settings(), client_settings());
  Bytes much(1'000'000);
  test::Random random(1);
  for (auto& byte : much) byte = static_cast<std::uint8_t>(random.below(256));
  ASSERT_TRUE(client.channel->send(much, client.out));
  exchange(server, client, 7'777);
  EXPECT_EQ(server.heard, much);
}

TEST_F(Tls, AnEndIsSaid) {
  auto [server, client] = shaken(server_settings(), client_settings());
  say(server, "last word");
  server.channel->close(server.out);
  exchange(server, client);
  EXPECT_EQ(text_of(client.heard), "last word");
  EXPECT_TRUE(client.channel->ended());
  EXPECT_FALSE(client.channel->failed());
}

TEST_F(Tls, ATruncatedHandshakeIsNeverEstablished) {
  End client = connect(this->client(client_settings()));
  const auto context = this->server(server_settings());
  for (std::size_t size = 0; size < client.out.size(); ++size) {
    End server = accept(context);
    EXPECT_TRUE(
        server.channel->receive(std::span(client.out).first(size), server.heard, server.out))
        << "it may go on at " << size;
    EXPECT_FALSE(server.channel->established());
    EXPECT_THAT(server.out, IsEmpty()) << "nothing is given away for a part of a first message";
  }
}

TEST_F(Tls, GarbageEndsTheChannelAndSaysSo) {
  const auto context = this->server(server_settings());
  test::Random random(3);
  for (int i = 0; i < 300; ++i) {
    Bytes garbage(1 + random.below(2'000));
    for (auto& byte : garbage) byte = static_cast<std::uint8_t>(random.below(256));
    End server = accept(context);
    server.channel->receive(garbage, server.heard, server.out);
    EXPECT_FALSE(server.channel->established());
    EXPECT_EQ(server.channel->failed(), !server.channel->error().empty());
    EXPECT_THAT(server.heard, IsEmpty());
  }
}

TEST_F(Tls, AFlippedBitAnywhereIsNoticed) {
  auto [server, client] = shaken(server_settings(), client_settings());
  say(client, "a sealed record");
  const Bytes record = std::exchange(client.out, {});
  const std::size_t at = record.size() / 2;
  Bytes flipped = record;
  flipped[at] ^= 1;
  EXPECT_FALSE(server.channel->receive(flipped, server.heard, server.out));
  EXPECT_THAT(server.heard, IsEmpty());
  EXPECT_EQ(server.channel->status(), Status::kProtocol);
  EXPECT_FALSE(server.channel->receive(record, server.heard, server.out)) << "it is of no more use";
  EXPECT_FALSE(server.channel->send(bytes_of("x"), server.out));
}

TEST_F(Tls, WhatWasRecordedCannotBeSaidAgain) {
  const auto context = this->server(server_settings(true));
  End server = accept(context);
  End client = connect(this->client(client_settings("worker")));
  say(client, "hello");
  Bytes recorded;  // all that the client sends
  while (!client.out.empty() || !server.out.empty()) {
    recorded.insert(recorded.end(), client.out.begin(), client.out.end());
    const Bytes to_server = std::exchange(client.out, {});
    server.channel->receive(to_server, server.heard, server.out);
    const Bytes to_client = std::exchange(server.out, {});
    client.channel->receive(to_client, client.heard, client.out);
  }
  ASSERT_EQ(text_of(server.heard), "hello");
  End replayed = accept(context);
  EXPECT_FALSE(replayed.channel->receive(recorded, replayed.heard, replayed.out));
  EXPECT_THAT(replayed.heard, IsEmpty());
  // The same record twice on one connection.
  say(client, "again");
  EXPECT_TRUE(server.channel->receive(client.out, server.heard, server.out));
  EXPECT_FALSE(server.channel->receive(client.out, server.heard, server.out));
  EXPECT_EQ(text_of(server.heard), "helloagain");
}

// ---- Certificates ------------------------------------------------------------------------------

TEST_F(Tls, TheNamesOfAClientsCertificateAreKnown) {
  auto [server, client] = shaken(server_settings(true), client_settings("worker"));
  ASSERT_TRUE(server.channel->established()) << server.channel->error();
  EXPECT_THAT(server.channel->peer_names(),
              ElementsAre("worker-7.example", "spiffe://cluster/worker-7"));
}

TEST_F(Tls, NoCertificateWhereOneIsRequired) {
  auto [server, client] = shaken(server_settings(true), client_settings());
  EXPECT_FALSE(server.channel->established());
  EXPECT_EQ(server.channel->status(), Status::kAuth);
  EXPECT_THAT(server.channel->error(), HasSubstr("shows no certificate"));
  EXPECT_EQ(client.channel->status(), Status::kAuth);
  EXPECT_THAT(client.channel->error(), HasSubstr("wants a client certificate"));
}

TEST_F(Tls, NoCertificateWhereOneMayBeShown) {
  ServerSettings settings = server_settings(true);
  settings.require_client_certificate = false;
  auto [server, client] = shaken(settings, client_settings());
  EXPECT_TRUE(server.channel->established()) << server.channel->error();
  EXPECT_THAT(server.channel->peer_names(), IsEmpty());
}

TEST_F(Tls, ADaemonOfAnotherAuthorityIsRefused) {
  const test::TlsFiles others(directory_.path(), "others");
  ClientSettings settings = client_settings();
  settings.ca_file = others.ca();
  auto [server, client] = shaken(server_settings(), settings);
  EXPECT_EQ(client.channel->status(), Status::kAuth);
  EXPECT_THAT(client.channel->error(), HasSubstr("the daemon's certificate is not accepted"));
  EXPECT_EQ(server.channel->status(), Status::kAuth);
  EXPECT_THAT(server.channel->error(), HasSubstr("does not know who signed our certificate"));
}

TEST_F(Tls, AClientOfAnotherAuthorityIsRefused) {
  const test::TlsFiles others(directory_.path(), "others");
  others.make_client("stranger", {"worker-7.example"});
  auto [server, client] = shaken(server_settings(true), client_settings("stranger"));
  EXPECT_FALSE(server.channel->established());
  EXPECT_EQ(server.channel->status(), Status::kAuth);
  EXPECT_EQ(client.channel->status(), Status::kAuth);
}

TEST_F(Tls, ExpiredCertificatesAreRefusedOnBothSides) {
  files_.make(
      "server-old",
      {.names = {"127.0.0.1"}, .for_server = true, .valid_from_s = -7200, .valid_until_s = -3600});
  ServerSettings old = server_settings();
  old.certificate_file = files_.certificate("server-old");
  old.key_file = files_.key("server-old");
  auto [server, client] = shaken(old, client_settings());
  EXPECT_EQ(client.channel->status(), Status::kAuth);
  EXPECT_THAT(client.channel->error(), HasSubstr("expired"));

  files_.make("worker-old",
              {.names = {"w"}, .for_client = true, .valid_from_s = -7200, .valid_until_s = -3600});
  auto [server2, client2] = shaken(server_settings(true), client_settings("worker-old"));
  EXPECT_EQ(server2.channel->status(), Status::kAuth);
  EXPECT_THAT(server2.channel->error(), HasSubstr("expired"));
  EXPECT_THAT(client2.channel->error(), HasSubstr("expired"));
}

TEST_F(Tls, OneThatIsNotValidYetIsRefused) {
  files_.make("early",
              {.names = {"w"}, .for_client = true, .valid_from_s = 3600, .valid_until_s = 7200});
  auto [server, client] = shaken(server_settings(true), client_settings("early"));
  EXPECT_EQ(server.channel->status(), Status::kAuth);
  EXPECT_THAT(server.channel->error(), HasSubstr("not yet valid"));
}

TEST_F(Tls, ACertificateIsGoodForItsOwnPurposeAlone) {
  // A worker that has stolen nothing must not pass for the daemon, nor the daemon's key for a
  // worker.
  ServerSettings worker = server_settings();
  worker.certificate_file = files_.certificate("worker");
  worker.key_file = files_.key("worker");
  auto [server, client] = shaken(worker, client_settings(), "worker-7.example");
  EXPECT_EQ(client.channel->status(), Status::kAuth) << client.channel->error();
  auto [server2, client2] = shaken(server_settings(true), client_settings("server"));
  EXPECT_EQ(server2.channel->status(), Status::kAuth) << server2.channel->error();
}

TEST_F(Tls, WhatTheDaemonsFilesAreGoodForIsKnownBeforeAnybodyComes) {
  const auto facts_of = [&](const std::string& name, const std::string& authority = "") {
    ServerSettings settings{files_.certificate(name), files_.key(name), authority, false};
    return server(settings)->facts();
  };
  const std::int64_t now_s = std::time(nullptr);
  const ServerFacts good = facts_of("server", files_.ca());
  EXPECT_EQ(good.unfit, "");
  EXPECT_NEAR(static_cast<double>(good.certificate.from_s), static_cast<double>(now_s - 300), 60);
  EXPECT_NEAR(static_cast<double>(good.certificate.until_s),
              static_cast<double>(now_s + test::kDayS), 60);
  ASSERT_EQ(good.authorities.size(), 1U);
  EXPECT_NEAR(static_cast<double>(good.authorities[0].until_s),
              static_cast<double>(now_s + test::kDayS), 60);
  EXPECT_EQ(good.chain.until_s, 0);
  EXPECT_THAT(facts_of("server").authorities, IsEmpty());

  EXPECT_THAT(facts_of("worker").unfit, HasSubstr("worker.crt: it is not for a server"));
  EXPECT_THAT(facts_of("server", files_.certificate("worker")).unfit,
              HasSubstr("worker.crt: /CN=worker is no authority's certificate"));
  files_.make("nameless", {.names = {"spiffe://cluster/syncd"}, .for_server = true});
  EXPECT_THAT(facts_of("nameless").unfit, HasSubstr("made out for no DNS name and no address"));

  // What stands behind it counts if it is on its way, and does not make the certificate's own
  // worse.
  files_.make("short", {.names = {"x"}, .for_server = true, .valid_until_s = 600});
  const std::string both = directory_.file("both.crt");
  ServerSettings chained = server_settings();
  chained.certificate_file = both;
  for (const auto& [behind, until_s] : {std::pair(files_.certificate("short"), std::int64_t{0}),
                                        std::pair(files_.ca(), good.authorities[0].until_s)}) {
    test::write_private_file(
        both, test::read_file(files_.certificate("server")) + test::read_file(behind));
    const ServerFacts facts = server(chained)->facts();
    EXPECT_EQ(facts.certificate.until_s, good.certificate.until_s);
    EXPECT_EQ(facts.chain.until_s, until_s);
  }
}

// An intermediate authority need not have the one above it beside it. (Here a client's own
// certificate stands for it: it has nothing above it, either.)
TEST_F(Tls, EachAuthorityIsTrustedAsItIsNamed) {
  ServerSettings settings = server_settings(true);
  settings.client_ca_file = files_.certificate("worker");
  auto [server, client] = shaken(settings, client_settings("worker"));
  EXPECT_TRUE(server.channel->established()) << server.channel->error();
  files_.make_client("other", {"worker-8.example"});
  auto [server2, client2] = shaken(settings, client_settings("other"));
  EXPECT_EQ(server2.channel->status(), Status::kAuth);
}

TEST_F(Tls, ACertificateWithoutAUsableNameIsKnownByItsDigest) {
  files_.make("nameless", {.for_client = true});
  files_.make("numeric", {.names = {"10.0.0.1"}, .for_client = true});
  std::string digest;
  for (const char* name : {"nameless", "numeric"}) {
    auto [server, client] = shaken(server_settings(true), client_settings(name));
    ASSERT_TRUE(server.channel->established()) << server.channel->error();
    EXPECT_THAT(server.channel->peer_names(), IsEmpty());
    EXPECT_EQ(server.channel->peer_digest().size(), 64U);
    EXPECT_NE(std::exchange(digest, server.channel->peer_digest()), server.channel->peer_digest());
  }
  auto [server, client] = shaken(server_settings(true), client_settings("worker"));
  EXPECT_EQ(server.channel->peer_digest(), "");
}

TEST(Validity, IsFromOneMomentToAnother) {
  constexpr Validity kDay{1'000'000'000, 1'000'086'400};
  EXPECT_EQ(why_not_in_force(kDay, 999'999'999), "is not valid before 2001-09-09T01:46:40Z");
  EXPECT_EQ(why_not_in_force(kDay, 1'000'000'000), "");
  EXPECT_EQ(why_not_in_force(kDay, 1'000'086'400), "");
  EXPECT_EQ(why_not_in_force(kDay, 1'000'086'401),
            "has expired: it was valid until 2001-09-10T01:46:40Z");
}

// Of authorities that follow one another the next may be there before the first has gone.
TEST(Validity, OfSeveralOneIsEnough) {
  const std::vector<Validity> both = {{100, 200}, {150, 400}};
  const auto until = [&](std::int64_t now_s) { return best_of(both, now_s).until_s; };
  EXPECT_EQ(until(50), 200) << "the first to come";
  EXPECT_EQ(until(100), 200);
  EXPECT_EQ(until(149), 200);
  EXPECT_EQ(until(150), 400);
  EXPECT_EQ(until(400), 400);
  EXPECT_EQ(until(500), 400) << "the last to have ended";
  EXPECT_EQ(why_not_in_force(best_of(both, 120), 120), "");
  EXPECT_EQ(best_of({}, 120).until_s, 0);
}

TEST_F(Tls, TheDaemonMustBeTheOneThatWasMeant) {
  EXPECT_TRUE(
      shaken(server_settings(), client_settings(), "localhost").second.channel->established());
  for (const std::string host : {"elsewhere.example", "127.0.0.2", "::1"}) {
    auto [server, client] = shaken(server_settings(), client_settings(), host);
    EXPECT_FALSE(client.channel->established()) << host;
    EXPECT_EQ(client.channel->status(), Status::kAuth);
    EXPECT_THAT(client.channel->error(), HasSubstr("'" + host + "'"));
  }
}

// ---- Sessions ----------------------------------------------------------------------------------

TEST_F(Tls, ASecondConnectionResumesTheFirst) {
  const auto at_server = server(server_settings(true));
  const auto at_client = client(client_settings("worker"));
  for (const bool second : {false, true}) {
    End server = accept(at_server);
    End client = connect(at_client);
    exchange(server, client);
    ASSERT_TRUE(server.channel->established());
    EXPECT_EQ(server.channel->resumed(), second);
    EXPECT_EQ(client.channel->resumed(), second);
    EXPECT_THAT(server.channel->peer_names(),
                ElementsAre("worker-7.example", "spiffe://cluster/worker-7"))
        << "who it is stands in the session";
  }
}

std::int64_t seconds_later = 0;
std::int64_t later() {
  return std::time(nullptr) + seconds_later;
}

TEST_F(Tls, ASessionIsGoodForNoLongerThanItsCertificate) {
  files_.make("brief",
              {.names = {"w"}, .for_client = true, .valid_from_s = -60, .valid_until_s = 3600});
  ServerSettings settings = server_settings(true);
  settings.now = later;
  const auto at_server = server(settings);
  for (const std::string who : {"worker", "brief"}) {
    const auto at_client = client(client_settings(who));
    for (const bool second : {false, true}) {
      seconds_later = second ? 7200 : 0;
      End server = accept(at_server);
      End client = connect(at_client);
      exchange(server, client);
      EXPECT_EQ(server.channel->resumed(), second) << who;
      const bool refused = second && who == "brief";
      EXPECT_EQ(server.channel->established(), !refused) << who;
      if (!refused) continue;
      EXPECT_EQ(server.channel->status(), Status::kAuth);
      EXPECT_THAT(server.channel->error(), HasSubstr("the client's certificate has expired"));
      EXPECT_THAT(server.channel->peer_names(), IsEmpty());
    }
  }
}

TEST_F(Tls, ADaemonThatWasStartedAnewShakesHandsInFull) {
  const auto at_client = client(client_settings());
  for (int i = 0; i < 2; ++i) {
    End server = accept(this->server(server_settings()));
    End client = connect(at_client);
    exchange(server, client);
    ASSERT_TRUE(client.channel->established());
    EXPECT_FALSE(client.channel->resumed());
  }
}

// ---- Peers that are not ours -------------------------------------------------------------------

// OpenSSL as it comes, as a client.
class PlainClient {
 public:
  explicit PlainClient(int version, bool names_protocol)
      : context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_min_proto_version(context_, version);
    SSL_CTX_set_max_proto_version(context_, version);
    ssl_ = SSL_new(context_);
    SSL_set_bio(ssl_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    if (names_protocol) {
      constexpr unsigned char kName[] = {7, 's', 'y', 'n', 'c', 'd', '/', '1'};
      SSL_set_alpn_protos(ssl_, kName, sizeof kName);
    }
    SSL_set_connect_state(ssl_);
  }
  ~PlainClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  PlainClient(const PlainClient&) = delete;
  PlainClient& operator=(const PlainClient&) = delete;

  SSL* ssl() { return ssl_; }
  // Lets it and the server talk until neither has anything to say.
  void talk_to(
      End& server, const std::function<void(SSL*)>& act = [](SSL* ssl) { SSL_do_handshake(ssl); }) {
    for (int i = 0; i < 10; ++i) {
      act(ssl_);
      char buffer[65536];
      const int size = BIO_read(SSL_get_wbio(ssl_), buffer, sizeof buffer);
      if (size <= 0) return;
      server.channel->receive(
          std::span(reinterpret_cast<std::uint8_t*>(buffer), static_cast<std::size_t>(size)),
          server.heard, server.out);
      BIO_write(SSL_get_rbio(ssl_), server.out.data(), static_cast<int>(server.out.size()));
      server.out.clear();
    }
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_;
};

TEST_F(Tls, AnOlderVersionIsRefused) {
  End server = accept(this->server(server_settings()));
  PlainClient old(TLS1_2_VERSION, true);
  old.talk_to(server);
  EXPECT_TRUE(server.channel->failed());
  EXPECT_THAT(server.channel->error(), HasSubstr("TLS 1.3 alone"));
}

TEST_F(Tls, AClientThatNamesNoProtocolIsRefused) {
  End server = accept(this->server(server_settings()));
  PlainClient other(TLS1_3_VERSION, false);
  other.talk_to(server);
  EXPECT_TRUE(server.channel->failed());
  EXPECT_THAT(server.channel->error(), HasSubstr("syncd/1"));
}

TEST_F(Tls, RenegotiationDoesNotExistAndNewKeysDo) {
  End server = accept(this->server(server_settings()));
  PlainClient client(TLS1_3_VERSION, true);
  client.talk_to(server);
  ASSERT_TRUE(server.channel->established()) << server.channel->error();
  EXPECT_EQ(SSL_renegotiate(client.ssl()), 0);
  ASSERT_EQ(SSL_key_update(client.ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
  bool said = false;
  client.talk_to(server, [&](SSL* ssl) {
    if (!std::exchange(said, true)) SSL_write(ssl, "x", 1);
  });
  EXPECT_EQ(text_of(server.heard), "x");
  EXPECT_FALSE(server.channel->failed()) << server.channel->error();
}

// What a client has to say after `updates` times new keys, as one piece.
Bytes after_new_keys(PlainClient& client, int updates, const Bytes& said) {
  for (int i = 0; i < updates; ++i) {
    EXPECT_EQ(SSL_key_update(client.ssl(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
    EXPECT_EQ(SSL_do_handshake(client.ssl()), 1);
  }
  EXPECT_EQ(SSL_write(client.ssl(), said.data(), static_cast<int>(said.size())),
            static_cast<int>(said.size()));
  Bytes bytes(BIO_ctrl_pending(SSL_get_wbio(client.ssl())));
  BIO_read(SSL_get_wbio(client.ssl()), bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

// 27 bytes each for the client, and a derivation of keys for the daemon, which anybody could have
// it do: no credentials are needed before the first message.
TEST_F(Tls, NewKeysWithoutEndAreRefused) {
  const auto context = this->server(server_settings());
  const auto outcome = [&](int updates) {
    End server = accept(context);
    PlainClient client(TLS1_3_VERSION, true);
    client.talk_to(server);
    EXPECT_TRUE(server.channel->established()) << server.channel->error();
    const Bytes bytes = after_new_keys(client, updates, bytes_of("x"));
    const bool good = server.channel->receive(bytes, server.heard, server.out);
    EXPECT_EQ(good, !server.channel->failed());
    if (good) return text_of(server.heard);
    EXPECT_EQ(server.channel->status(), Status::kProtocol);
    EXPECT_THAT(server.heard, IsEmpty()) << "the rest was not even looked at";
    return server.channel->error();
  };
  EXPECT_EQ(outcome(16), "x");
  EXPECT_THAT(outcome(17), HasSubstr("asks for new TLS keys again and again"));
  EXPECT_THAT(outcome(5'000), HasSubstr("asks for new TLS keys again and again"));
}

TEST_F(Tls, WhoSendsMuchMayHaveNewKeysNowAndThen) {
  End server = accept(this->server(server_settings()));
  PlainClient client(TLS1_3_VERSION, true);
  client.talk_to(server);
  const Bytes much(1024 * 1024, 'x');
  for (int i = 0; i < 40; ++i) {
    const Bytes bytes = after_new_keys(client, 1, much);
    ASSERT_TRUE(server.channel->receive(bytes, server.heard, server.out))
        << server.channel->error();
    ASSERT_EQ(std::exchange(server.heard, {}).size(), much.size());
  }
}

TEST_F(Tls, OtherProtocolsAreTold) {
  End client = connect(this->client(client_settings()));
  EXPECT_FALSE(client.channel->receive(bytes_of("\x20\x01\x02\x03 a frame of ours"), client.heard,
                                       client.out));
  EXPECT_THAT(client.channel->error(), HasSubstr("does not speak TLS"));
  EXPECT_FALSE(looks_like_tls(bytes_of("GET / HTTP/1.1\r\n")));
  EXPECT_TRUE(looks_like_tls(connect(this->client(client_settings())).out));
  // Every length that a frame may have is told from it by its first three bytes.
  for (std::uint32_t length = 1; length <= kDefaultMaxFrameBytes; ++length) {
    const std::uint8_t frame[] = {static_cast<std::uint8_t>(length),
                                  static_cast<std::uint8_t>(length >> 8),
                                  static_cast<std::uint8_t>(length >> 16), 0};
    ASSERT_FALSE(looks_like_tls(frame)) << length;
  }
}

// ---- Files -------------------------------------------------------------------------------------

TEST_F(Tls, FilesThatCannotBeUsedAreNamed) {
  std::string error;
  ServerSettings settings = server_settings();
  settings.certificate_file = directory_.file("none.crt");
  EXPECT_EQ(Context::server(settings, error), nullptr);
  EXPECT_THAT(error, HasSubstr("none.crt"));

  const std::string pipe = directory_.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  settings.certificate_file = pipe;
  EXPECT_EQ(Context::server(settings, error), nullptr);
  EXPECT_EQ(error, "certificate " + pipe + ": it is not a regular file");
  settings = server_settings(true);
  settings.client_ca_file = pipe;
  EXPECT_EQ(Context::server(settings, error), nullptr);
  EXPECT_EQ(error, "certificate authority " + pipe + ": it is not a regular file");

  settings = server_settings();
  settings.key_file = files_.key("worker");
  EXPECT_EQ(Context::server(settings, error), nullptr);
  EXPECT_THAT(error, HasSubstr("does not belong to the certificate"));

  test::write_private_file(files_.key("shown"), test::read_file(files_.key("server")), 0644);
  settings.key_file = files_.key("shown");
  EXPECT_EQ(Context::server(settings, error), nullptr);
  EXPECT_THAT(error,
              ::testing::AllOf(HasSubstr("shown.key"), HasSubstr("0644"), HasSubstr("0600")));

  test::write_private_file(files_.key("garbage"), "not a key");
  settings.key_file = files_.key("garbage");
  EXPECT_EQ(Context::server(settings, error), nullptr);
  EXPECT_THAT(error,
              ::testing::AllOf(HasSubstr("garbage.key"), ::testing::Not(HasSubstr("not a key"))));

  ClientSettings half = client_settings("worker");
  half.key_file.clear();
  EXPECT_EQ(Context::client(half, error), nullptr);
  EXPECT_THAT(error, HasSubstr("key"));
}

}  // namespace
}  // namespace syncd::tls
