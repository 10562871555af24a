#include "tests/fuzz/text_targets.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>

#include "base/check.h"
#include "control/control_lines.h"
#include "host/array_file.h"
#include "text/units.h"

namespace eplog::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

std::string_view TextOf(std::span<const std::byte> in) {
  return {reinterpret_cast<const char*>(in.data()), in.size()};
}

Bytes BytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Outcome Refused(const Error& error, ErrorCode code) {
  // People read it: nothing in it may move the cursor or change colours.
  const bool one_line = std::none_of(error.message.begin(), error.message.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  EPLOG_CHECK(!error.message.empty() && one_line, "a refusal is one line");
  EPLOG_CHECK(error.code == code, "a refusal names what is wrong with the input");
  return Outcome::kCorrupt;
}

// Comes back from how it would be typed; or is refused in one line.
Outcome CheckSize(std::string_view text) {
  const auto size = ParseSize(text);
  if (!size.ok()) {
    return Refused(size.error(), ErrorCode::kInvalidArgument);
  }
  const auto back = ParseSize(TypedSize(*size));
  EPLOG_CHECK(back.ok() && *back == *size, "an accepted size comes back");
  return Outcome::kAccepted;
}

Outcome DecodeOneRequest(const std::string& line) {
  const auto request = DecodeControlRequest(line);
  if (!request.ok()) {
    return Refused(request.error(), ErrorCode::kInvalidArgument);
  }
  EPLOG_CHECK(request->is_object() && (*request)["verb"].is_string(), "a request has a verb");
  // Its strings are text, so that nothing is replaced when they are written.
  const auto back = DecodeControlRequest(request->dump());
  EPLOG_CHECK(back.ok() && *back == *request, "an accepted request comes back");
  return Outcome::kAccepted;
}

constexpr const char* kArrayFiles[] = {
    "uuid = \"3f0c1b2a-0000-4000-8000-0123456789ab\"\nname = \"array\"\n\n[[member]]\n"
    "name = \"ssd0\"\npath = \"ssd0\"\n\n[[member]]\nname = \"log0\"\npath = \"/dev/sdb\"\n",
    "# a comment\nuuid = '3F0C1B2A-0000-4000-8000-0123456789AB'\nname = \"a\\tb\\u00e9\"\n"
    "member = [{name = \"ssd31\", path = \"../x\"}, {name = \"log3\", path = '''a b'''}]\n",
    "uuid = \"3f0c1b2a-0000-4000-8000-0123456789ab\"\nname = \"array\"\nmember = []\n",
    "uuid = 5\nname = \"array\"\n[[member]]\nname = \"ssd0\"\npath = \"ssd0\"\n",
    "uuid = \"no\\nuuid\"\nname = \"array\"\n[[member]]\nname = \"ssd00\"\npath = \"./ssd0\"\n",
    "uuid = \"3f0c1b2a-0000-4000-8000-0123456789ab\"\nname = \"array\"\n\n[[member]]\n"
    "name = \"ssd0\"\npath = \"d/../x\"\n[[member]]\nname = \"ssd1\"\npath = \"x\"\n",
    "uuid = \"3f0c1b2a-0000-4000-8000-0123456789ab\"\nname = \"array\"\nsize = 1e3\n"
    "date = 1979-05-27T07:32:00Z\nflag = true\nhex = 0xFF\n[a.b.\"c d\"]\n",
    "[member]\nname = \"ssd0\"\npath = [[[[]]]]\n"};

constexpr const char* kRequests[] = {
    "{\"verb\":\"status\"}\n",
    "{\"verb\":\"volume-create\",\"name\":\"v\\u00e9\\n\",\"size_bytes\":1073741824}\n",
    "{\"verb\":\"buffers\",\"device_chunks\":16,\"stripes\":0}\n{\"verb\":\"commit\"}\n",
    "{\"verb\":\"inject\",\"device\":3,\"read_error_rate\":1.5e-3,\"hang\":true}\n",
    "{\"verb\":7}\n",
    "[1,-2,[[{}]],null,false]\n{\"verb\":\"\\ud83d\\ude00\"}\n",
    "\n\n{\"verb\":\"replace\",\"device\":-1,\"path\":\"/dev/disk/by-id/x\"}\r\n{\"verb\"",
    "{\"verb\":\"a\",\"verb\":\"b\",\"x\":{\"y\":[1e308,0.1,18446744073709551615,-0]}}\n"};

constexpr const char* kUnitLines[] = {"4096\n4K\n4KiB",       "1.5G\n2T\n16p",
                                      "30s\n5m\n1.5h\n500ms", "10%\n10\n100 %",
                                      "0.000000001d\n1d",     "18446744073709551615\n16P",
                                      " 4 KB \n-1\n1e3",      "0\n0.5\n0.5K\n1.0000000001K"};

}  // namespace

Outcome RunArrayFile(std::span<const std::byte> in) {
  const std::filesystem::path file = "/arrays/a/array.toml";
  const auto array = ParseArrayFile(TextOf(in), file);
  if (!array.ok()) {
    EPLOG_CHECK(array.error().message.find(file.string()) == 0, "a refusal names the file");
    return Refused(array.error(), ErrorCode::kCorrupt);
  }
  EPLOG_CHECK(array->file == file && array->uuid.size() == 36 && !array->name.empty() &&
                  array->name.size() < 64 && !array->members.empty(),
              "an accepted array file is sane");
  for (const MemberPath& member : array->members) {
    EPLOG_CHECK(array->Locate(member).is_absolute(), "a member is somewhere");
  }
  const auto back = ParseArrayFile(FormatArrayFile(*array), file);
  EPLOG_CHECK(back.ok() && back->uuid == array->uuid && back->name == array->name &&
                  back->members == array->members,
              "an accepted array file comes back");
  return Outcome::kAccepted;
}

Bytes SeedArrayFile(uint64_t seed) {
  return BytesOf(kArrayFiles[seed % std::size(kArrayFiles)]);
}

Outcome RunControl(std::span<const std::byte> in) {
  const size_t piece = in.empty() ? 1 : 1 + static_cast<size_t>(in[0]);
  std::string_view rest = TextOf(in.empty() ? in : in.subspan(1));
  const std::string whole(rest);
  ControlLines lines;
  Outcome outcome = Outcome::kNotFound;
  std::string seen;
  while (!rest.empty()) {
    const std::string_view next = rest.substr(0, piece);
    rest.remove_prefix(next.size());
    lines.Add(next);
    while (const auto line = lines.Next()) {
      EPLOG_CHECK(line->find('\n') == std::string::npos, "a line has no end in it");
      seen += *line + "\n";
      const Outcome one = DecodeOneRequest(*line);
      outcome = outcome == Outcome::kAccepted ? outcome : one;
    }
    EPLOG_CHECK(!lines.too_long() || whole.size() > kMaxControlLineBytes, "a line has its length");
  }
  EPLOG_CHECK(seen == whole.substr(0, whole.rfind('\n') + 1), "every line comes out as it came in");
  return outcome;
}

Bytes SeedControl(uint64_t seed) {
  return BytesOf(std::string(1, static_cast<char>(seed * 37)) +
                 kRequests[seed % std::size(kRequests)]);
}

Outcome RunUnits(std::span<const std::byte> in) {
  std::string_view rest = TextOf(in);
  Outcome outcome = Outcome::kCorrupt;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!IsPlainText(line)) {
      continue;  // refusals quote what was typed, and who types control characters sees them
    }
    const Outcome size = CheckSize(line);
    const auto duration = ParseDuration(line);
    const auto percent = ParsePercent(line);
    EPLOG_CHECK(!percent.ok() || *percent <= 100, "a percentage is one");
    if (!duration.ok()) {
      static_cast<void>(Refused(duration.error(), ErrorCode::kInvalidArgument));
    }
    if (!percent.ok()) {
      static_cast<void>(Refused(percent.error(), ErrorCode::kInvalidArgument));
    }
    const bool any = size == Outcome::kAccepted || duration.ok() || percent.ok();
    outcome = any ? Outcome::kAccepted : outcome;
  }
  return outcome;
}

Bytes SeedUnits(uint64_t seed) {
  return BytesOf(kUnitLines[seed % std::size(kUnitLines)]);
}

}  // namespace eplog::fuzz
