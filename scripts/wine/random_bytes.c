/* bcryptprimitives.dll, which Wine before 9 does not have: programs in Rust (pydantic_core) ask it for random numbers.
 * SystemFunction036 is RtlGenRandom (ntsecapi.h). */

__declspec(dllimport) unsigned char SystemFunction036(void *buffer, unsigned long nbytes);

int ProcessPrng(unsigned char *buffer, unsigned long long nbytes) {
    while (nbytes) {
        unsigned long some = nbytes < (1ul << 30) ? (unsigned long)nbytes : 1ul << 30;
        if (!SystemFunction036(buffer, some)) return 0;
        buffer += some;
        nbytes -= some;
    }
    return 1;
}
