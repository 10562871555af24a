#include "report/arguments.h"

namespace eplog {

std::string TextArgument(const Json& request, const char* key) {
  const auto found = request.find(key);
  return found != request.end() && found->is_string() ? found->get<std::string>() : "";
}

Result<std::string> NameArgument(const Json& request) {
  const auto found = request.find("name");
  if (found == request.end() || !found->is_string()) {
    return Fail(ErrorCode::kInvalidArgument, "the request lacks a volume's name");
  }
  return found->get<std::string>();
}

Result<uint64_t> SizeArgument(const Json& request) {
  const auto found = request.find("size_bytes");
  // A number with a sign or a fraction is no size.
  if (found == request.end() || !found->is_number_unsigned()) {
    return Fail(ErrorCode::kInvalidArgument, "the request lacks a size in bytes");
  }
  return found->get<uint64_t>();
}

// A member's number, SSDs first.
Result<uint32_t> DeviceArgument(const Json& request) {
  const auto found = request.find("device");
  if (found == request.end() || !found->is_number_unsigned() ||
      found->get<uint64_t>() >= UINT32_MAX) {
    return Fail(ErrorCode::kInvalidArgument, "the request lacks the number of a device");
  }
  return found->get<uint32_t>();
}

Result<DeviceIdentity> IdentityArgument(const Json& request) {
  const auto lacking = [] {
    return Fail(ErrorCode::kInvalidArgument,
                "the request lacks the identity of the device that was looked at");
  };
  const auto found = request.find("identity");
  if (found == request.end() || !found->is_object()) {
    return lacking();
  }
  const auto block = found->find("block");
  const auto device = found->find("device");
  const auto inode = found->find("inode");
  if (block == found->end() || !block->is_boolean() || device == found->end() ||
      !device->is_number_unsigned() || inode == found->end() || !inode->is_number_unsigned()) {
    return lacking();
  }
  return DeviceIdentity{block->get<bool>(), device->get<uint64_t>(), inode->get<uint64_t>()};
}

tl::unexpected<Error> NoSuchVolume(const std::string& name) {
  return Fail(ErrorCode::kNotFound, "no volume is called " + name);
}

}  // namespace eplog
