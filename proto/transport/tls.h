// TLS 1.3 between a byte stream and the frames on it: bytes of the peer go in, what it said and
// bytes for it come out. It knows no socket and no event loop, so that the daemon's loop, the
// client's threads and a blocking tool use the same code. A Context may be used by any number of
// threads at once, a Channel by one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "proto/base/status.h"

struct bio_st;
struct ssl_ctx_st;
struct ssl_session_st;
struct ssl_st;
struct x509_st;

namespace syncd::tls {

// What both sides must name (ALPN), so that neither speaks another protocol by mistake. The number
// is the major version of the wire protocol.
inline constexpr const char* kProtocolName = "syncd/1";

struct ServerSettings {
  std::string certificate_file;  // PEM: the daemon's own certificate first, then what signed it
  std::string key_file;          // PEM, not encrypted, nobody else's to read
  // PEM: who may sign clients' certificates, intermediate authorities too, whose own need not be
  // there; empty: none is asked for
  std::string client_ca_file;
  bool require_client_certificate = false;
  bool http = false;  // HTTP/1.1 is spoken over it instead of frames
  // Seconds since 1970, by which a client's certificate has expired also where a session that is
  // resumed brings it along; null: the system's clock.
  std::int64_t (*now)() = nullptr;
};

struct ClientSettings {
  std::string ca_file;           // PEM: who may sign the daemon's certificate; empty: the system's
  std::string certificate_file;  // PEM; empty: this client has none
  std::string key_file;          // PEM, not encrypted, nobody else's to read
  bool http = false;             // as the daemon's
};

// In seconds since 1970.
struct Validity {
  std::int64_t from_s = 0;
  std::int64_t until_s = 0;  // 0: there is no certificate
};

// What the daemon's files are good for.
struct ServerFacts {
  Validity certificate;  // the daemon's own
  // While all certificates that follow it in its file, up to its authority, are in force; until_s
  // is 0 if there are none. A client may know another chain.
  Validity chain;
  std::vector<Validity> authorities;  // of client_ca_file, one by one
  // Why no client would accept the certificate, or nobody could have one of these authorities,
  // whatever the time is: "certificate F: it is not for a server (...)". Empty: nothing is known
  // against them.
  std::string unfit;
};

// Of several, of which one is enough: of those in force the one that ends last; else the first to
// come; else the last to have ended. {} of none.
Validity best_of(const std::vector<Validity>& all, std::int64_t now_s);
// "has expired: it was valid until 2026-11-01T00:00:00Z", "is not valid before ..."; empty if it is
// in force at that time.
std::string why_not_in_force(const Validity& validity, std::int64_t now_s);

// Certificates, keys and rules of one side, and what it remembers of earlier sessions.
class Context {
 public:
  // Read the files. Null, with a sentence in `error` that names the file and what is wrong with it.
  static std::shared_ptr<Context> server(const ServerSettings& settings, std::string& error);
  static std::shared_ptr<Context> client(const ClientSettings& settings, std::string& error);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  bool is_server() const { return is_server_; }
  // Of a server's context; nothing of a client's.
  const ServerFacts& facts() const { return facts_; }

 private:
  friend class Channel;
  Context(ssl_ctx_st* context, bool is_server, bool http, std::int64_t (*now)() = nullptr)
      : context_(context), is_server_(is_server), http_(http), now_(now) {}
  bool has_expired(const x509_st* certificate) const;
  static int on_session(ssl_st* ssl, ssl_session_st* session);
  static void on_message(int is_written, int version, int type, const void* bytes, std::size_t size,
                         ssl_st* ssl, void* unused);
  ssl_session_st* take_session(const std::string& peer);

  ssl_ctx_st* context_;
  const bool is_server_;
  const bool http_;
  std::int64_t (*const now_)();
  ServerFacts facts_;
  std::mutex mutex_;
  std::map<std::string, ssl_session_st*> sessions_;  // a client's: the latest of each peer
};

class Channel {
 public:
  // The daemon's end: waits for the client's first bytes. Null: memory ran out.
  static std::unique_ptr<Channel> accept(std::shared_ptr<Context> context);
  // The client's end. The daemon's certificate must be made out for `host`, a name or a numeric
  // address; `peer` tells daemons apart whose sessions may be resumed. Appends the first bytes to
  // `out`. Null: memory ran out.
  static std::unique_ptr<Channel> connect(std::shared_ptr<Context> context, const std::string& host,
                                          const std::string& peer, std::vector<std::uint8_t>& out);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Takes what came from the peer, however it was cut; appends what the peer said to `plain` and
  // what must be sent to it to `out`. False: error() says why; what is in `out` (an alert) is still
  // to be sent, and the channel is of no more use.
  bool receive(std::span<const std::uint8_t> bytes, std::vector<std::uint8_t>& plain,
               std::vector<std::uint8_t>& out);
  // Appends `plain`, sealed, to `out`; before the handshake is over it is kept until then. False as
  // above.
  bool send(std::span<const std::uint8_t> plain, std::vector<std::uint8_t>& out);
  // Tells the peer that nothing more comes.
  void close(std::vector<std::uint8_t>& out);

  bool established() const { return established_; }
  bool resumed() const;                  // without certificates shown anew
  bool ended() const { return ended_; }  // the peer has said that nothing more comes
  bool failed() const { return status_ != Status::kOk; }
  // kAuth: a certificate is missing or not accepted, on either side; kProtocol: anything else.
  Status status() const { return status_; }
  const std::string& error() const { return error_; }
  // The DNS names, e-mail addresses and URIs of the peer's certificate, once established; empty if
  // it has shown none. Only at the daemon's end.
  const std::vector<std::string>& peer_names() const { return peer_names_; }
  // Of a certificate that has no such name: its SHA-256 in hexadecimal. Else empty.
  const std::string& peer_digest() const { return peer_digest_; }

 private:
  friend class Context;
  // What the library reads and writes during one call: no memory is kept between two.
  struct Wire {
    std::span<const std::uint8_t> in;
    std::vector<std::uint8_t>* out = nullptr;
  };
  struct Io;
  bool is_flooded() const;

  explicit Channel(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  bool open();
  bool shake_hands();
  bool check_peer();
  bool fail();
  bool fail(Status status, std::string error);
  bool is_server() const { return context_->is_server(); }

  std::shared_ptr<Context> context_;
  ssl_st* ssl_ = nullptr;
  Wire wire_;
  std::uint64_t received_bytes_ = 0;
  std::uint64_t key_updates_ = 0;  // that the peer has asked for
  std::string host_;
  std::string peer_;
  bool established_ = false;
  bool ended_ = false;
  Status status_ = Status::kOk;
  std::string error_;
  std::vector<std::uint8_t> unsent_;  // sent before the handshake was over
  std::vector<std::string> peer_names_;
  std::string peer_digest_;
};

// Whether the first bytes of a client can be TLS. A frame cannot begin like this: its length would
// be more than a frame may have.
bool looks_like_tls(std::span<const std::uint8_t> bytes);

}  // namespace syncd::tls
