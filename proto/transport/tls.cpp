// TLS over OpenSSL 3; see the header for threads.
#include "proto/transport/tls.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/plain_text.h"
#include "proto/transport/secret_file.h"

namespace syncd::tls {
namespace {

// A chain of certificates in a handshake, from a peer that is not known yet.
constexpr long kCertificateBytesMax = 32 * 1024;
constexpr std::size_t kKeyFileBytesMax = 64 * 1024;
// How long a session may be resumed: no longer does a client get by with a certificate that the
// daemon has seen before.
constexpr long kSessionSeconds = 3600;
// Peers whose latest session a client keeps.
constexpr std::size_t kSessionsMax = 64;
constexpr std::size_t kRecordBytes = 16 * 1024;
// New keys that a peer may ask for: so many, and one more for each so many bytes. Each costs this
// side some 10 us, the peer 27 bytes; who has a reason asks after millions of records.
constexpr std::uint64_t kKeyUpdatesFree = 16;
constexpr std::uint64_t kKeyUpdateBytes = 1024 * 1024;

constexpr unsigned char kAlpn[] = {7, 's', 'y', 'n', 'c', 'd', '/', '1'};
constexpr unsigned char kHttpAlpn[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

using X509Pointer = std::unique_ptr<X509, decltype(&X509_free)>;
using KeyPointer = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using BioPointer = std::unique_ptr<BIO, decltype(&BIO_free)>;
using ContextPointer = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

std::string library_reason() {
  // Where the system has refused something, the first says so, and the last that it was the system.
  const unsigned long first = ERR_peek_error();
  if (ERR_SYSTEM_ERROR(first)) return std::strerror(ERR_GET_REASON(first));
  const unsigned long code = ERR_peek_last_error();
  if (code == 0) return "no reason given";
  const char* text = ERR_reason_error_string(code);
  return text != nullptr ? text : "error " + std::to_string(ERR_GET_REASON(code));
}

// There is no person at the terminal to ask.
int no_password(char*, int, int, void*) {
  return -1;
}

// Who speaks HTTP may name nothing.
template <bool kIsHttp>
int choose_protocol(SSL*, const unsigned char** out, unsigned char* length,
                    const unsigned char* offered, unsigned int offered_length, void*) {
  std::span<const unsigned char> ours = kAlpn;
  if (kIsHttp) ours = kHttpAlpn;
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, length, ours.data(), static_cast<unsigned>(ours.size()),
                            offered, offered_length) != OPENSSL_NPN_NEGOTIATED) {
    return kIsHttp ? SSL_TLSEXT_ERR_NOACK : SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

// Has the library `read` a PEM file, which it says 1 to.
bool load_pem(SSL_CTX* context, const std::string& what, const std::string& path,
              int (*read)(SSL_CTX*, const char*), std::string& error) {
  struct stat found {};
  // A pipe, where the library would wait for a writer. It names itself a file that is not there.
  if (::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {
    error = what + " " + path + ": it is not a regular file";
    return false;
  }
  if (read(context, path.c_str()) == 1) return true;
  error = what + " " + path + ": it cannot be read as a PEM file: " + library_reason();
  return false;
}

bool load_certificate(SSL_CTX* context, const std::string& path, std::string& error) {
  return load_pem(context, "certificate", path, SSL_CTX_use_certificate_chain_file, error);
}

bool load_key(SSL_CTX* context, const std::string& path, const std::string& certificate,
              std::string& error) {
  std::string text;
  std::string why;
  if (!read_secret_file(path, kKeyFileBytesMax, text, why)) {
    error = "key " + why;
    return false;
  }
  const BioPointer bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  const KeyPointer key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr),
                       EVP_PKEY_free);
  wipe(text);
  if (!key) {
    error = "key " + path +
            ": it holds no private key in PEM that needs no password: " + library_reason();
    return false;
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) == 1 && SSL_CTX_check_private_key(context) == 1) {
    return true;
  }
  error = "key " + path + ": it does not belong to the certificate " + certificate;
  return false;
}

bool load_authorities(SSL_CTX* context, const std::string& path, std::string& error) {
  // Each is trusted as it is named, an intermediate one without the one above it, too.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
  return load_pem(context, "certificate authority", path, SSL_CTX_load_verify_file, error);
}

using MessageCallback = void (*)(int, int, int, const void*, std::size_t, SSL*, void*);

// What holds on both sides. Null: memory ran out.
ContextPointer new_context(const SSL_METHOD* method, MessageCallback on_message) {
  ERR_clear_error();
  ContextPointer context(SSL_CTX_new(method), SSL_CTX_free);
  if (!context) return context;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE);
  // Thousands of connections are idle most of the time.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_max_cert_list(context.get(), kCertificateBytesMax);
  SSL_CTX_set_default_passwd_cb(context.get(), no_password);
  SSL_CTX_set_timeout(context.get(), kSessionSeconds);
  SSL_CTX_set_msg_callback(context.get(), on_message);
  return context;
}

// Calls visit(type, value) for each alternative name.
template <class Visit>
void for_each_name(X509* certificate, Visit visit) {
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> all(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  for (int i = 0; i < sk_GENERAL_NAME_num(all.get()); ++i) {
    int type = 0;
    const void* value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(all.get(), i), &type);
    visit(type, value);
  }
}

std::vector<std::string> names_of(X509* certificate) {
  std::vector<std::string> names;
  for_each_name(certificate, [&](int type, const void* found) {
    if (type != GEN_DNS && type != GEN_EMAIL && type != GEN_URI) return;
    const auto* value = static_cast<const ASN1_STRING*>(found);
    const std::string name(reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
                           static_cast<std::size_t>(ASN1_STRING_length(value)));
    // Whatever an authority signs: a name with a zero or a line break in it would be read as
    // another.
    const auto plain = [](char c) { return c > ' ' && c < 0x7f; };
    if (!name.empty() && name.size() <= 255 && std::all_of(name.begin(), name.end(), plain)) {
      names.push_back(name);
    }
  });
  return names;
}

std::string digest_of(const X509* certificate) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (X509_digest(certificate, EVP_sha256(), digest, &size) != 1) throw std::bad_alloc();
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

std::int64_t seconds_of(const ASN1_TIME* time) {
  std::tm utc{};
  return ASN1_TIME_to_tm(time, &utc) == 1 ? static_cast<std::int64_t>(timegm(&utc)) : 0;
}

Validity validity_of(const X509* certificate) {
  return {seconds_of(X509_get0_notBefore(certificate)),
          seconds_of(X509_get0_notAfter(certificate))};
}

std::string subject_of(X509* certificate) {
  char text[256];
  X509_NAME_oneline(X509_get_subject_name(certificate), text, sizeof text);
  return plain(text);
}

bool names_a_host(X509* certificate) {
  bool found = false;
  for_each_name(certificate, [&](int type, const void*) {
    found = found || type == GEN_DNS || type == GEN_IPADD;
  });
  return found;
}

void examine_certificate(SSL_CTX* context, const std::string& path, ServerFacts& facts) {
  X509* own = SSL_CTX_get0_certificate(context);
  facts.certificate = validity_of(own);
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(context, &chain);
  X509* last = own;  // of the way; files have it in order, and may have more
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    X509* next = sk_X509_value(chain, i);
    if (X509_check_issued(next, last) != X509_V_OK || X509_self_signed(last, 0) == 1) continue;
    last = next;
    const Validity of_next = validity_of(next);
    if (facts.chain.until_s == 0) facts.chain = of_next;
    facts.chain.from_s = std::max(facts.chain.from_s, of_next.from_s);
    facts.chain.until_s = std::min(facts.chain.until_s, of_next.until_s);
  }
  if (X509_check_purpose(own, X509_PURPOSE_SSL_SERVER, 0) != 1) {
    facts.unfit = "certificate " + path +
                  ": it is not for a server, so that no client would accept it; allowed: one whose "
                  "usage is TLS server authentication, or not restricted";
  } else if (!names_a_host(own)) {
    facts.unfit = "certificate " + path +
                  ": it is made out for no DNS name and no address (subjectAltName), so that no "
                  "client would accept it";
  }
}

void examine_authorities(SSL_CTX* context, const std::string& path, ServerFacts& facts) {
  const STACK_OF(X509_OBJECT)* all = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context));
  for (int i = 0; i < sk_X509_OBJECT_num(all); ++i) {
    X509* authority = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(all, i));
    if (authority == nullptr) continue;  // a revocation list
    facts.authorities.push_back(validity_of(authority));
    // A self-signed one may be trusted for itself.
    if (X509_check_ca(authority) == 0 && X509_self_signed(authority, 0) != 1) {
      facts.unfit = "certificate authority " + path + ": " + subject_of(authority) +
                    " is no authority's certificate, so that it could vouch for nobody; allowed: "
                    "those of the authorities that sign clients' certificates";
    }
  }
}

bool is_numeric_address(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

Validity best_of(const std::vector<Validity>& all, std::int64_t now_s) {
  // In force, to come, ended; and within these as the header says.
  const auto rank = [now_s](const Validity& v) {
    return now_s > v.until_s  ? std::pair(0, v.until_s)
           : now_s < v.from_s ? std::pair(1, -v.from_s)
                              : std::pair(2, v.until_s);
  };
  const auto best =
      std::max_element(all.begin(), all.end(),
                       [&](const Validity& a, const Validity& b) { return rank(a) < rank(b); });
  return best == all.end() ? Validity{} : *best;
}

std::string why_not_in_force(const Validity& validity, std::int64_t now_s) {
  if (now_s > validity.until_s) {
    return "has expired: it was valid until " + utc_text(validity.until_s * 1'000'000);
  }
  return now_s < validity.from_s ? "is not valid before " + utc_text(validity.from_s * 1'000'000)
                                 : "";
}

// ---- Context -----------------------------------------------------------------------------------

std::shared_ptr<Context> Context::server(const ServerSettings& settings, std::string& error) {
  ContextPointer context = new_context(TLS_server_method(), on_message);
  if (!context) {
    error = "memory ran out";
    return nullptr;
  }
  if (!load_certificate(context.get(), settings.certificate_file, error) ||
      !load_key(context.get(), settings.key_file, settings.certificate_file, error)) {
    return nullptr;
  }
  if (!settings.client_ca_file.empty()) {
    if (!load_authorities(context.get(), settings.client_ca_file, error)) return nullptr;
    // Told to clients, so that one with several certificates knows which to show.
    SSL_CTX_set_client_CA_list(context.get(),
                               SSL_load_client_CA_file(settings.client_ca_file.c_str()));
    SSL_CTX_set_verify(
        context.get(),
        SSL_VERIFY_PEER |
            (settings.require_client_certificate ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
        nullptr);
  }
  SSL_CTX_set_alpn_select_cb(
      context.get(), settings.http ? choose_protocol<true> : choose_protocol<false>, nullptr);
  // Tickets hold the session; the daemon remembers nothing of it.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 1);
  // A session of the one protocol is none of the other's.
  constexpr unsigned char kNames[] = {'s', 'y', 'n', 'c', 'd', 'h'};
  SSL_CTX_set_session_id_context(context.get(), kNames, sizeof kNames - (settings.http ? 0 : 1));
  std::shared_ptr<Context> made(new Context(context.release(), true, settings.http, settings.now));
  examine_certificate(made->context_, settings.certificate_file, made->facts_);
  if (!settings.client_ca_file.empty()) {
    examine_authorities(made->context_, settings.client_ca_file, made->facts_);
  }
  return made;
}

std::shared_ptr<Context> Context::client(const ClientSettings& settings, std::string& error) {
  ContextPointer context = new_context(TLS_client_method(), on_message);
  if (!context) {
    error = "memory ran out";
    return nullptr;
  }
  if (settings.ca_file.empty()) {
    SSL_CTX_set_default_verify_paths(context.get());
  } else if (!load_authorities(context.get(), settings.ca_file, error)) {
    return nullptr;
  }
  if (settings.certificate_file.empty() != settings.key_file.empty()) {
    error = settings.key_file.empty()
                ? "certificate " + settings.certificate_file +
                      ": the key that belongs to it is not named"
                : "key " + settings.key_file + ": the certificate that it belongs to is not named";
    return nullptr;
  }
  if (!settings.certificate_file.empty() &&
      (!load_certificate(context.get(), settings.certificate_file, error) ||
       !load_key(context.get(), settings.key_file, settings.certificate_file, error))) {
    return nullptr;
  }
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context.get(), on_session);
  if (!settings.http) SSL_CTX_set_alpn_protos(context.get(), kAlpn, sizeof kAlpn);
  return std::shared_ptr<Context>(new Context(context.release(), false, settings.http));
}

Context::~Context() {
  for (const auto& [peer, session] : sessions_) SSL_SESSION_free(session);
  SSL_CTX_free(context_);
}

// Called by the library within a channel's receive(). 1: the session is ours now.
int Context::on_session(SSL* ssl, SSL_SESSION* session) {
  auto* channel = static_cast<Channel*>(SSL_get_app_data(ssl));
  Context& context = *channel->context_;
  try {
    const std::lock_guard lock(context.mutex_);
    SSL_SESSION*& kept = context.sessions_[channel->peer_];
    SSL_SESSION_free(std::exchange(kept, session));
    if (context.sessions_.size() > kSessionsMax) {
      const auto other = context.sessions_.begin()->first == channel->peer_
                             ? std::next(context.sessions_.begin())
                             : context.sessions_.begin();
      SSL_SESSION_free(other->second);
      context.sessions_.erase(other);
    }
    return 1;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

// Called by the library within a channel's receive() and send(). The library would handle as many
// as the bytes at hand hold: it gets no more of them.
void Context::on_message(int is_written, int, int type, const void* bytes, std::size_t size,
                         SSL* ssl, void*) {
  constexpr unsigned char kKeyUpdate = 24;
  if (is_written != 0 || type != SSL3_RT_HANDSHAKE || size == 0 ||
      *static_cast<const unsigned char*>(bytes) != kKeyUpdate) {
    return;
  }
  auto* channel = static_cast<Channel*>(SSL_get_app_data(ssl));
  ++channel->key_updates_;
  if (channel->is_flooded()) channel->wire_.in = {};
}

// Each is used once, so that an observer cannot link two connections of one client.
SSL_SESSION* Context::take_session(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(peer);
  if (found == sessions_.end()) return nullptr;
  SSL_SESSION* session = found->second;
  sessions_.erase(found);
  return session;
}

// ---- What the library reads and writes ----------------------------------------------------------

struct Channel::Io {
  static int read(BIO* bio, char* to, int size) {
    auto* wire = static_cast<Wire*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    if (wire->in.empty()) {
      BIO_set_retry_read(bio);
      return -1;
    }
    const std::size_t count =
        std::min(static_cast<std::size_t>(std::max(size, 0)), wire->in.size());
    std::memcpy(to, wire->in.data(), count);
    wire->in = wire->in.subspan(count);
    return static_cast<int>(count);
  }
  // Within the C library: an exception must not leave it.
  static int write(BIO* bio, const char* from, int size) {
    auto* wire = static_cast<Wire*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    if (wire->out == nullptr || size < 0) return -1;
    try {
      wire->out->insert(wire->out->end(), from, from + size);
    } catch (const std::bad_alloc&) {
      return -1;
    }
    return size;
  }
  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  // Lives as long as the process.
  static const BIO_METHOD* method() {
    static const BIO_METHOD* const made = [] {
      BIO_METHOD* fresh = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "syncd");
      if (fresh == nullptr) throw std::bad_alloc();
      BIO_meth_set_read(fresh, read);
      BIO_meth_set_write(fresh, write);
      BIO_meth_set_ctrl(fresh, control);
      return fresh;
    }();
    return made;
  }
};

bool Context::has_expired(const X509* certificate) const {
  std::time_t now = now_ != nullptr ? now_() : std::time(nullptr);
  return X509_cmp_time(X509_get0_notAfter(certificate), &now) <= 0;
}

// ---- Channel -----------------------------------------------------------------------------------

bool Channel::open() {
  ERR_clear_error();
  BIO* bio = BIO_new(Io::method());
  ssl_ = SSL_new(context_->context_);
  if (bio == nullptr || ssl_ == nullptr) {
    BIO_free(bio);
    return false;
  }
  BIO_set_data(bio, &wire_);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  return true;
}

std::unique_ptr<Channel> Channel::accept(std::shared_ptr<Context> context) {
  std::unique_ptr<Channel> channel(new Channel(std::move(context)));
  if (!channel->open()) return nullptr;
  SSL_set_accept_state(channel->ssl_);
  return channel;
}

std::unique_ptr<Channel> Channel::connect(std::shared_ptr<Context> context, const std::string& host,
                                          const std::string& peer, std::vector<std::uint8_t>& out) {
  std::unique_ptr<Channel> channel(new Channel(std::move(context)));
  if (!channel->open()) return nullptr;
  SSL* ssl = channel->ssl_;
  channel->host_ = host;
  channel->peer_ = peer;
  SSL_set_hostflags(ssl,
                    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  if (is_numeric_address(host)) {
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) != 1) return nullptr;
  } else if (SSL_set1_host(ssl, host.c_str()) != 1 ||
             SSL_set_tlsext_host_name(ssl, host.c_str()) != 1) {
    return nullptr;
  }
  if (SSL_SESSION* session = channel->context_->take_session(peer)) {
    SSL_set_session(ssl, session);
    SSL_SESSION_free(session);
  }
  SSL_set_connect_state(ssl);
  channel->wire_ = {{}, &out};
  channel->shake_hands();
  channel->wire_ = {};
  return channel;
}

Channel::~Channel() {
  // A session whose connection was lost without a word may be resumed all the same: each frame says
  // how long it is, so that nothing is taken for whole that was cut. The library would forget it.
  if (established_ && !failed()) SSL_set_shutdown(ssl_, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
  SSL_free(ssl_);
}

bool Channel::resumed() const {
  return SSL_session_reused(ssl_) == 1;
}

bool Channel::is_flooded() const {
  return key_updates_ > kKeyUpdatesFree + received_bytes_ / kKeyUpdateBytes;
}

bool Channel::receive(std::span<const std::uint8_t> bytes, std::vector<std::uint8_t>& plain,
                      std::vector<std::uint8_t>& out) {
  if (failed()) return false;
  received_bytes_ += bytes.size();
  wire_ = {bytes, &out};
  ERR_clear_error();
  bool good = established_ || shake_hands();
  while (good && established_ && !ended_) {
    std::uint8_t record[kRecordBytes];
    std::size_t count = 0;
    const int code = SSL_read_ex(ssl_, record, sizeof record, &count);
    if (code == 1) {
      plain.insert(plain.end(), record, record + count);
      continue;
    }
    const int why = SSL_get_error(ssl_, code);
    if (why == SSL_ERROR_WANT_READ) break;
    if (why == SSL_ERROR_ZERO_RETURN) {
      ended_ = true;
    } else {
      good = fail();
    }
  }
  wire_ = {};
  if (good && is_flooded()) {
    good = fail(Status::kProtocol,
                (is_server() ? "the client" : "the daemon") +
                    std::string(" asks for new TLS keys again and again (KeyUpdate)"));
  }
  return good;
}

// True also while more bytes are needed.
bool Channel::shake_hands() {
  const int code = SSL_do_handshake(ssl_);
  if (code != 1) {
    return SSL_get_error(ssl_, code) == SSL_ERROR_WANT_READ || fail();
  }
  if (!check_peer()) return false;
  established_ = true;
  if (unsent_.empty()) return true;
  std::vector<std::uint8_t> early;
  early.swap(unsent_);
  std::vector<std::uint8_t>& out = *wire_.out;
  const Wire before = wire_;
  const bool sent = send(early, out);
  wire_ = before;
  return sent;
}

bool Channel::check_peer() {
  const unsigned char* name = nullptr;
  unsigned length = 0;
  SSL_get0_alpn_selected(ssl_, &name, &length);
  if (length == 0 && !context_->http_) {
    return fail(Status::kProtocol, std::string(is_server() ? "the client" : "the daemon") +
                                       " does not name the protocol " + kProtocolName);
  }
  X509* certificate = SSL_get0_peer_certificate(ssl_);
  if (!is_server() || certificate == nullptr) return true;
  // A session that is resumed shows none anew, and its certificate may have expired since.
  if (context_->has_expired(certificate)) {
    return fail(Status::kAuth, "the client's certificate has expired");
  }
  peer_names_ = names_of(certificate);
  if (peer_names_.empty()) peer_digest_ = digest_of(certificate);
  return true;
}

bool Channel::send(std::span<const std::uint8_t> plain, std::vector<std::uint8_t>& out) {
  if (failed()) return false;
  if (!established_) {
    unsent_.insert(unsent_.end(), plain.begin(), plain.end());
    return true;
  }
  if (plain.empty()) return true;
  ERR_clear_error();
  wire_ = {{}, &out};
  std::size_t written = 0;
  const int code = SSL_write_ex(ssl_, plain.data(), plain.size(), &written);
  const bool good = code == 1 || fail();
  wire_ = {};
  return good;
}

void Channel::close(std::vector<std::uint8_t>& out) {
  if (failed() || !established_) return;
  ERR_clear_error();
  wire_ = {{}, &out};
  SSL_shutdown(ssl_);
  wire_ = {};
  ERR_clear_error();
}

bool Channel::fail(Status status, std::string error) {
  status_ = status;
  error_ = std::move(error);
  ERR_clear_error();
  return false;
}

// Turns the library's reason, written for programmers, into one that a user can act on.
bool Channel::fail() {
  const bool server = is_server();
  const std::string peer = server ? "the client" : "the daemon";
  const long verified = SSL_get_verify_result(ssl_);
  const unsigned long code = ERR_peek_error();
  const int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    std::string text = peer + "'s certificate is not accepted: ";
    text += X509_verify_cert_error_string(verified);
    if (verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH) {
      text += ": it is not made out for '" + host_ + "'";
    }
    return fail(Status::kAuth, std::move(text));
  }
  switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return fail(Status::kAuth, "the client shows no certificate, and this daemon wants one");
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return fail(Status::kAuth, "the daemon wants a client certificate, and none was shown");
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return fail(Status::kAuth, peer + " does not know who signed our certificate");
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return fail(Status::kAuth, peer + " says that our certificate has expired");
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
      return fail(Status::kAuth, peer + " does not accept our certificate: " + library_reason());
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
      return fail(Status::kProtocol, peer + " does not speak TLS");
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      return fail(Status::kProtocol, "no version of TLS in common: this side speaks TLS 1.3 alone");
    case SSL_R_NO_APPLICATION_PROTOCOL:
    case SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL:
      return fail(Status::kProtocol, std::string("no protocol in common: this side speaks ") +
                                         kProtocolName + " alone");
    default:
      return fail(Status::kProtocol, "TLS with " + peer + " failed: " + library_reason());
  }
}

bool looks_like_tls(std::span<const std::uint8_t> bytes) {
  constexpr std::uint8_t kHandshakeRecord = 22;
  constexpr std::uint8_t kMajorVersion = 3;
  return !bytes.empty() && bytes[0] == kHandshakeRecord &&
         (bytes.size() < 2 || bytes[1] == kMajorVersion) && (bytes.size() < 3 || bytes[2] != 0);
}

}  // namespace syncd::tls
