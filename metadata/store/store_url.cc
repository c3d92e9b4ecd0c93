// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/store_url.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>

namespace mc::metadata {
namespace {

constexpr std::size_t kMaxSecretBytes = 4096;

struct Scheme {
  std::string_view name;
  StoreUrl::Kind kind;
  bool tls;
  std::uint16_t port;
};
constexpr Scheme kSchemes[] = {
    {"memory", StoreUrl::Kind::kMemory, false, 0},  {"redis", StoreUrl::Kind::kRedis, false, 6379},
    {"rediss", StoreUrl::Kind::kRedis, true, 6379}, {"etcd", StoreUrl::Kind::kEtcd, false, 2379},
    {"etcds", StoreUrl::Kind::kEtcd, true, 2379},   {"http", StoreUrl::Kind::kHttp, false, 8080},
    {"https", StoreUrl::Kind::kHttp, true, 443},
};

tl::unexpected<Status> wrong(std::string text) {
  return fail(MC_INVALID_ARGUMENT, "cluster store URL: " + std::move(text));
}

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

// nullopt: a '%' without two hex digits, or a zero byte.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const auto high = hex_digit(text[i + 1]);
    const auto low = hex_digit(text[i + 2]);
    if (!high || !low || (*high == 0 && *low == 0)) return std::nullopt;
    result += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return result;
}

// Returns the part before the separator. text keeps the rest, which may be empty.
std::string_view cut_at(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return head;
}

template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool host_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_' || c == ':';
}

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t port) {
  Endpoint endpoint{"", port};
  std::string_view host = text;
  std::string_view rest;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return wrong("an IPv6 address lacks its ']'");
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  if (!rest.empty() &&
      (rest[0] != ':' || !parse_number(rest.substr(1), endpoint.port) || endpoint.port == 0)) {
    return wrong("a port is a number from 1 to 65535 after ':'");
  }
  if (host.empty() || host.size() > 255 || !std::all_of(host.begin(), host.end(), host_letter)) {
    return wrong("a host is a name or an address; several are separated by ','");
  }
  endpoint.host = host;
  return endpoint;
}

Result<std::string> secret_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxSecretBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return wrong("cannot read the password file '" + path + "'; check its name and owner");
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty() || text.size() > kMaxSecretBytes) {
    return wrong("the password file '" + path + "' is empty or longer than 4096 bytes");
  }
  return text;
}

Status set_option(StoreUrl& url, std::string_view name, const std::string& value) {
  const bool redis = url.kind == StoreUrl::Kind::kRedis;
  const bool memory = url.kind == StoreUrl::Kind::kMemory;
  if (name == "password_file" || (redis && name == "sentinel_password_file")) {
    auto secret = secret_of_file(value);
    if (!secret) return secret.error();
    (name == "password_file" ? url.login : url.sentinel_login).password = *std::move(secret);
  } else if (name == "user" && !memory) {
    url.login.user = value;
  } else if (name == "tls" && !memory) {
    if (value != "0" && value != "1") return wrong("tls= is 0 or 1").value();
    url.tls.enabled = value == "1";
  } else if (name == "ca" && !memory) {
    url.tls.ca = value;
  } else if (name == "cert" && !memory) {
    url.tls.cert = value;
  } else if (name == "key" && !memory) {
    url.tls.key = value;
  } else if (name == "server_name" && redis) {
    url.tls.server_name = value;
  } else if (name == "sentinel" && redis) {
    url.sentinel_name = value;
  } else if (name == "sentinel_user" && redis) {
    url.sentinel_login.user = value;
  } else {
    return wrong(
               "an option is none of user, password_file, tls, ca, cert, key, and for Redis "
               "server_name, sentinel, sentinel_user, sentinel_password_file")
        .value();
  }
  return {};
}

Status set_options(StoreUrl& url, std::string_view query) {
  while (!query.empty()) {
    std::string_view value = cut_at(query, '&');
    const std::string_view name = cut_at(value, '=');
    const auto decoded = percent_decoded(value);
    if (!decoded || decoded->empty()) {
      return wrong("an option has no value, or its value is not percent-encoded correctly").value();
    }
    if (Status status = set_option(url, name, *decoded); !status.ok()) return status;
  }
  return {};
}

Status set_path(StoreUrl& url, std::string_view path) {
  if (url.kind == StoreUrl::Kind::kHttp) {
    url.path = "/" + std::string(path);
    const auto bad = [](char c) { return c <= 0x20 || c >= 0x7f || c == '#'; };
    if (path.empty() || std::any_of(path.begin(), path.end(), bad)) {
      return wrong("an HTTP store needs its path, as in http://host:8080/metadata").value();
    }
  } else if (url.kind == StoreUrl::Kind::kRedis && !path.empty()) {
    if (!parse_number(path, url.db) || url.db > 65535) {
      return wrong("only the number of a Redis database may follow the hosts, as in /0").value();
    }
  } else if (!path.empty()) {
    return wrong("only options may follow the hosts").value();
  }
  return {};
}

Status check_together(const StoreUrl& url) {
  const TlsFiles& tls = url.tls;
  if (tls.cert.empty() != tls.key.empty()) return wrong("cert= and key= go together").value();
  if (!tls.enabled && !(tls.ca + tls.cert + tls.server_name).empty()) {
    return wrong("ca=, cert=, key= and server_name= need tls=1 or a scheme with TLS").value();
  }
  if (url.kind == StoreUrl::Kind::kEtcd && url.login.user.empty() != url.login.password.empty()) {
    return wrong("etcd needs a user with a password").value();
  }
  if (url.kind == StoreUrl::Kind::kHttp && url.login.given()) {
    return wrong("Mooncake's HTTP protocol has no users; leave user and password out").value();
  }
  return {};
}

}  // namespace

std::string text_of(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

std::string text_of(const std::vector<Endpoint>& endpoints) {
  std::string text;
  for (const Endpoint& endpoint : endpoints) text += (text.empty() ? "" : ",") + text_of(endpoint);
  return text;
}

Status at(const Endpoint& endpoint, const Status& status) {
  return {status.code(), text_of(endpoint) + ": " + std::string(status.text())};
}

Result<StoreUrl> parse_store_url(std::string_view text) {
  if (text.size() > kMaxUrlBytes) return wrong("longer than 4096 bytes");
  const std::size_t colon = text.find("://");
  const std::string_view scheme_name = text.substr(0, colon);
  const auto scheme = std::find_if(std::begin(kSchemes), std::end(kSchemes),
                                   [&](const Scheme& s) { return s.name == scheme_name; });
  if (colon == std::string_view::npos || scheme == std::end(kSchemes)) {
    return wrong(
        "begins with none of memory://, redis://, rediss://, etcd://, etcds://, http://, https://");
  }
  StoreUrl url;
  url.kind = scheme->kind;
  url.tls.enabled = scheme->tls;
  std::string_view rest = text.substr(colon + 3);
  const std::size_t question = rest.find('?');
  const std::string_view query =
      question == std::string_view::npos ? std::string_view() : rest.substr(question + 1);
  rest = rest.substr(0, question);
  if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
    std::string_view password = rest.substr(0, at);
    rest = rest.substr(at + 1);
    const auto user = percent_decoded(cut_at(password, ':'));
    const auto secret = percent_decoded(password);
    if (!user || !secret) return wrong("user or password is not percent-encoded correctly");
    url.login = {*user, *secret};
  }
  std::string_view hosts = cut_at(rest, '/');
  if (Status status = set_path(url, rest); !status.ok()) return fail(status);
  while (!hosts.empty()) {
    auto endpoint = parse_endpoint(cut_at(hosts, ','), scheme->port);
    if (!endpoint) return fail(endpoint.error());
    url.endpoints.push_back(*std::move(endpoint));
  }
  const bool memory = url.kind == StoreUrl::Kind::kMemory;
  const std::size_t most = url.kind == StoreUrl::Kind::kHttp ? 1 : kMaxEndpoints;
  if (memory ? !url.endpoints.empty() || url.login.given() : url.endpoints.empty()) {
    return wrong(memory ? "memory:// has no host" : "names no host");
  }
  if (url.endpoints.size() > most) return wrong("names too many hosts");
  if (Status status = set_options(url, query); !status.ok()) return fail(status);
  if (Status status = check_together(url); !status.ok()) return fail(status);
  return url;
}

}  // namespace mc::metadata
