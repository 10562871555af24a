// What `eplog assemble` says of the devices that it was given: as a document, and for a person. No
// device is touched here.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "eplog/examine.h"
#include "eplog/result.h"
#include "host/array_file.h"
#include "report/json.h"

namespace eplog::cli {

struct AssembleFindings {
  Examination found;
  std::set<std::string> in_use;  // paths of devices that another process has open
  struct Unopened {
    std::string path;
    std::string why;
  };
  std::vector<Unopened> unopened;
  size_t chosen = kNoArray;  // the array that is meant; devices of others are foreign to it
};

// Which array is meant: the one whose UUID begins with `prefix`; without a prefix the only one, or
// the only one that can be opened. kNoArray if that decides nothing. kNotFound, kInvalidArgument:
// the prefix fits none, or several.
Result<size_t> ChooseArray(const Examination& found, const std::string& prefix);

// {"arrays":[...],"devices":[...]}, the chosen array first, devices by array and member.
Json FindingsToJson(const AssembleFindings& findings);
// Of that document. Ends without a newline.
std::string FindingsText(const Json& document);
// Of that document: 0 whole, 3 degraded, or something is stale or foreign, 1 cannot be opened.
int FindingsStatus(const Json& document);

// array.toml for the members that belong to the chosen array, to be written to `file`. Refused
// where one of them is doubled, or a path cannot be written down.
Result<ArrayFile> FileOf(const AssembleFindings& findings, const std::filesystem::path& file);

}  // namespace eplog::cli
