//! Vector instructions on integers. A row: name, operands, whether the legacy form overwrites an
//! operand, the operand that may be in memory, and the codes of the legacy form, of VEX with 16 and
//! 32 bytes, and of EVEX with 16, 32 and 64 bytes.

use super::inst::rows;

rows! {
    INTEGERS
    PADDB "www" tied Last:
        Paddb_xmm_xmmm128 VEX_Vpaddb_xmm_xmm_xmmm128 VEX_Vpaddb_ymm_ymm_ymmm256
        EVEX_Vpaddb_xmm_k1z_xmm_xmmm128 EVEX_Vpaddb_ymm_k1z_ymm_ymmm256
        EVEX_Vpaddb_zmm_k1z_zmm_zmmm512;
    PADDW "www" tied Last:
        Paddw_xmm_xmmm128 VEX_Vpaddw_xmm_xmm_xmmm128 VEX_Vpaddw_ymm_ymm_ymmm256
        EVEX_Vpaddw_xmm_k1z_xmm_xmmm128 EVEX_Vpaddw_ymm_k1z_ymm_ymmm256
        EVEX_Vpaddw_zmm_k1z_zmm_zmmm512;
    PADDD "www" tied Last:
        Paddd_xmm_xmmm128 VEX_Vpaddd_xmm_xmm_xmmm128 VEX_Vpaddd_ymm_ymm_ymmm256
        EVEX_Vpaddd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpaddd_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32;
    PADDQ "www" tied Last:
        Paddq_xmm_xmmm128 VEX_Vpaddq_xmm_xmm_xmmm128 VEX_Vpaddq_ymm_ymm_ymmm256
        EVEX_Vpaddq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpaddq_ymm_k1z_ymm_ymmm256b64
        EVEX_Vpaddq_zmm_k1z_zmm_zmmm512b64;
    PMULLW "www" tied Last:
        Pmullw_xmm_xmmm128 VEX_Vpmullw_xmm_xmm_xmmm128 VEX_Vpmullw_ymm_ymm_ymmm256
        EVEX_Vpmullw_xmm_k1z_xmm_xmmm128 EVEX_Vpmullw_ymm_k1z_ymm_ymmm256
        EVEX_Vpmullw_zmm_k1z_zmm_zmmm512;
    PMULLD "www" tied Last:
        Pmulld_xmm_xmmm128 VEX_Vpmulld_xmm_xmm_xmmm128 VEX_Vpmulld_ymm_ymm_ymmm256
        EVEX_Vpmulld_xmm_k1z_xmm_xmmm128b32 EVEX_Vpmulld_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32;
    PMINSD "www" tied Last:
        Pminsd_xmm_xmmm128 VEX_Vpminsd_xmm_xmm_xmmm128 VEX_Vpminsd_ymm_ymm_ymmm256
        EVEX_Vpminsd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpminsd_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpminsd_zmm_k1z_zmm_zmmm512b32;
    PMAXSD "www" tied Last:
        Pmaxsd_xmm_xmmm128 VEX_Vpmaxsd_xmm_xmm_xmmm128 VEX_Vpmaxsd_ymm_ymm_ymmm256
        EVEX_Vpmaxsd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpmaxsd_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpmaxsd_zmm_k1z_zmm_zmmm512b32;
    PMINUD "www" tied Last:
        Pminud_xmm_xmmm128 VEX_Vpminud_xmm_xmm_xmmm128 VEX_Vpminud_ymm_ymm_ymmm256
        EVEX_Vpminud_xmm_k1z_xmm_xmmm128b32 EVEX_Vpminud_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpminud_zmm_k1z_zmm_zmmm512b32;
    PMAXUD "www" tied Last:
        Pmaxud_xmm_xmmm128 VEX_Vpmaxud_xmm_xmm_xmmm128 VEX_Vpmaxud_ymm_ymm_ymmm256
        EVEX_Vpmaxud_xmm_k1z_xmm_xmmm128b32 EVEX_Vpmaxud_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpmaxud_zmm_k1z_zmm_zmmm512b32;
    PMINSW "www" tied Last:
        Pminsw_xmm_xmmm128 VEX_Vpminsw_xmm_xmm_xmmm128 VEX_Vpminsw_ymm_ymm_ymmm256
        EVEX_Vpminsw_xmm_k1z_xmm_xmmm128 EVEX_Vpminsw_ymm_k1z_ymm_ymmm256
        EVEX_Vpminsw_zmm_k1z_zmm_zmmm512;
    PMAXSW "www" tied Last:
        Pmaxsw_xmm_xmmm128 VEX_Vpmaxsw_xmm_xmm_xmmm128 VEX_Vpmaxsw_ymm_ymm_ymmm256
        EVEX_Vpmaxsw_xmm_k1z_xmm_xmmm128 EVEX_Vpmaxsw_ymm_k1z_ymm_ymmm256
        EVEX_Vpmaxsw_zmm_k1z_zmm_zmmm512;
    PMINUW "www" tied Last:
        Pminuw_xmm_xmmm128 VEX_Vpminuw_xmm_xmm_xmmm128 VEX_Vpminuw_ymm_ymm_ymmm256
        EVEX_Vpminuw_xmm_k1z_xmm_xmmm128 EVEX_Vpminuw_ymm_k1z_ymm_ymmm256
        EVEX_Vpminuw_zmm_k1z_zmm_zmmm512;
    PMAXUW "www" tied Last:
        Pmaxuw_xmm_xmmm128 VEX_Vpmaxuw_xmm_xmm_xmmm128 VEX_Vpmaxuw_ymm_ymm_ymmm256
        EVEX_Vpmaxuw_xmm_k1z_xmm_xmmm128 EVEX_Vpmaxuw_ymm_k1z_ymm_ymmm256
        EVEX_Vpmaxuw_zmm_k1z_zmm_zmmm512;
    PMINSB "www" tied Last:
        Pminsb_xmm_xmmm128 VEX_Vpminsb_xmm_xmm_xmmm128 VEX_Vpminsb_ymm_ymm_ymmm256
        EVEX_Vpminsb_xmm_k1z_xmm_xmmm128 EVEX_Vpminsb_ymm_k1z_ymm_ymmm256
        EVEX_Vpminsb_zmm_k1z_zmm_zmmm512;
    PMAXSB "www" tied Last:
        Pmaxsb_xmm_xmmm128 VEX_Vpmaxsb_xmm_xmm_xmmm128 VEX_Vpmaxsb_ymm_ymm_ymmm256
        EVEX_Vpmaxsb_xmm_k1z_xmm_xmmm128 EVEX_Vpmaxsb_ymm_k1z_ymm_ymmm256
        EVEX_Vpmaxsb_zmm_k1z_zmm_zmmm512;
    PMINUB "www" tied Last:
        Pminub_xmm_xmmm128 VEX_Vpminub_xmm_xmm_xmmm128 VEX_Vpminub_ymm_ymm_ymmm256
        EVEX_Vpminub_xmm_k1z_xmm_xmmm128 EVEX_Vpminub_ymm_k1z_ymm_ymmm256
        EVEX_Vpminub_zmm_k1z_zmm_zmmm512;
    PMAXUB "www" tied Last:
        Pmaxub_xmm_xmmm128 VEX_Vpmaxub_xmm_xmm_xmmm128 VEX_Vpmaxub_ymm_ymm_ymmm256
        EVEX_Vpmaxub_xmm_k1z_xmm_xmmm128 EVEX_Vpmaxub_ymm_k1z_ymm_ymmm256
        EVEX_Vpmaxub_zmm_k1z_zmm_zmmm512;
    PMINSQ "www" free Last:
        INVALID INVALID INVALID EVEX_Vpminsq_xmm_k1z_xmm_xmmm128b64
        EVEX_Vpminsq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpminsq_zmm_k1z_zmm_zmmm512b64;
    PMAXSQ "www" free Last:
        INVALID INVALID INVALID EVEX_Vpmaxsq_xmm_k1z_xmm_xmmm128b64
        EVEX_Vpmaxsq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpmaxsq_zmm_k1z_zmm_zmmm512b64;
    PMINUQ "www" free Last:
        INVALID INVALID INVALID EVEX_Vpminuq_xmm_k1z_xmm_xmmm128b64
        EVEX_Vpminuq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpminuq_zmm_k1z_zmm_zmmm512b64;
    PMAXUQ "www" free Last:
        INVALID INVALID INVALID EVEX_Vpmaxuq_xmm_k1z_xmm_xmmm128b64
        EVEX_Vpmaxuq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpmaxuq_zmm_k1z_zmm_zmmm512b64;
    PMULLQ "www" free Last:
        INVALID INVALID INVALID EVEX_Vpmullq_xmm_k1z_xmm_xmmm128b64
        EVEX_Vpmullq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpmullq_zmm_k1z_zmm_zmmm512b64;
    PAND "www" tied Last:
        Pand_xmm_xmmm128 VEX_Vpand_xmm_xmm_xmmm128 VEX_Vpand_ymm_ymm_ymmm256
        EVEX_Vpandd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpandd_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32;
    POR "www" tied Last:
        Por_xmm_xmmm128 VEX_Vpor_xmm_xmm_xmmm128 VEX_Vpor_ymm_ymm_ymmm256
        EVEX_Vpord_xmm_k1z_xmm_xmmm128b32 EVEX_Vpord_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpord_zmm_k1z_zmm_zmmm512b32;
    PXOR "www" tied Last:
        Pxor_xmm_xmmm128 VEX_Vpxor_xmm_xmm_xmmm128 VEX_Vpxor_ymm_ymm_ymmm256
        EVEX_Vpxord_xmm_k1z_xmm_xmmm128b32 EVEX_Vpxord_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32;
    PCMPEQB "www" tied Last:
        Pcmpeqb_xmm_xmmm128 VEX_Vpcmpeqb_xmm_xmm_xmmm128 VEX_Vpcmpeqb_ymm_ymm_ymmm256 INVALID
        INVALID INVALID;
    PCMPGTB "www" tied Last:
        Pcmpgtb_xmm_xmmm128 VEX_Vpcmpgtb_xmm_xmm_xmmm128 VEX_Vpcmpgtb_ymm_ymm_ymmm256 INVALID
        INVALID INVALID;
    KPCMPB "kwwi" free Last:
        INVALID INVALID INVALID EVEX_Vpcmpb_kr_k1_xmm_xmmm128_imm8
        EVEX_Vpcmpb_kr_k1_ymm_ymmm256_imm8 EVEX_Vpcmpb_kr_k1_zmm_zmmm512_imm8;
    KPCMPUB "kwwi" free Last:
        INVALID INVALID INVALID EVEX_Vpcmpub_kr_k1_xmm_xmmm128_imm8
        EVEX_Vpcmpub_kr_k1_ymm_ymmm256_imm8 EVEX_Vpcmpub_kr_k1_zmm_zmmm512_imm8;
    PCMPEQW "www" tied Last:
        Pcmpeqw_xmm_xmmm128 VEX_Vpcmpeqw_xmm_xmm_xmmm128 VEX_Vpcmpeqw_ymm_ymm_ymmm256 INVALID
        INVALID INVALID;
    PCMPGTW "www" tied Last:
        Pcmpgtw_xmm_xmmm128 VEX_Vpcmpgtw_xmm_xmm_xmmm128 VEX_Vpcmpgtw_ymm_ymm_ymmm256 INVALID
        INVALID INVALID;
    KPCMPW "kwwi" free Last:
        INVALID INVALID INVALID EVEX_Vpcmpw_kr_k1_xmm_xmmm128_imm8
        EVEX_Vpcmpw_kr_k1_ymm_ymmm256_imm8 EVEX_Vpcmpw_kr_k1_zmm_zmmm512_imm8;
    KPCMPUW "kwwi" free Last:
        INVALID INVALID INVALID EVEX_Vpcmpuw_kr_k1_xmm_xmmm128_imm8
        EVEX_Vpcmpuw_kr_k1_ymm_ymmm256_imm8 EVEX_Vpcmpuw_kr_k1_zmm_zmmm512_imm8;
    PCMPEQD "www" tied Last:
        Pcmpeqd_xmm_xmmm128 VEX_Vpcmpeqd_xmm_xmm_xmmm128 VEX_Vpcmpeqd_ymm_ymm_ymmm256 INVALID
        INVALID INVALID;
    PCMPGTD "www" tied Last:
        Pcmpgtd_xmm_xmmm128 VEX_Vpcmpgtd_xmm_xmm_xmmm128 VEX_Vpcmpgtd_ymm_ymm_ymmm256 INVALID
        INVALID INVALID;
    KPCMPD "kwwi" free Last:
        INVALID INVALID INVALID EVEX_Vpcmpd_kr_k1_xmm_xmmm128b32_imm8
        EVEX_Vpcmpd_kr_k1_ymm_ymmm256b32_imm8 EVEX_Vpcmpd_kr_k1_zmm_zmmm512b32_imm8;
    KPCMPUD "kwwi" free Last:
        INVALID INVALID INVALID EVEX_Vpcmpud_kr_k1_xmm_xmmm128b32_imm8
        EVEX_Vpcmpud_kr_k1_ymm_ymmm256b32_imm8 EVEX_Vpcmpud_kr_k1_zmm_zmmm512b32_imm8;
    PCMPEQQ "www" tied Last:
        Pcmpeqq_xmm_xmmm128 VEX_Vpcmpeqq_xmm_xmm_xmmm128 VEX_Vpcmpeqq_ymm_ymm_ymmm256 INVALID
        INVALID INVALID;
    PCMPGTQ "www" tied Last:
        Pcmpgtq_xmm_xmmm128 VEX_Vpcmpgtq_xmm_xmm_xmmm128 VEX_Vpcmpgtq_ymm_ymm_ymmm256 INVALID
        INVALID INVALID;
    KPCMPQ "kwwi" free Last:
        INVALID INVALID INVALID EVEX_Vpcmpq_kr_k1_xmm_xmmm128b64_imm8
        EVEX_Vpcmpq_kr_k1_ymm_ymmm256b64_imm8 EVEX_Vpcmpq_kr_k1_zmm_zmmm512b64_imm8;
    KPCMPUQ "kwwi" free Last:
        INVALID INVALID INVALID EVEX_Vpcmpuq_kr_k1_xmm_xmmm128b64_imm8
        EVEX_Vpcmpuq_kr_k1_ymm_ymmm256b64_imm8 EVEX_Vpcmpuq_kr_k1_zmm_zmmm512b64_imm8;
    PSLLW_I "wwi" tied Never:
        Psllw_xmm_imm8 VEX_Vpsllw_xmm_xmm_imm8 VEX_Vpsllw_ymm_ymm_imm8
        EVEX_Vpsllw_xmm_k1z_xmmm128_imm8 EVEX_Vpsllw_ymm_k1z_ymmm256_imm8
        EVEX_Vpsllw_zmm_k1z_zmmm512_imm8;
    PSLLD_I "wwi" tied Never:
        Pslld_xmm_imm8 VEX_Vpslld_xmm_xmm_imm8 VEX_Vpslld_ymm_ymm_imm8
        EVEX_Vpslld_xmm_k1z_xmmm128b32_imm8 EVEX_Vpslld_ymm_k1z_ymmm256b32_imm8
        EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8;
    PSLLQ_I "wwi" tied Never:
        Psllq_xmm_imm8 VEX_Vpsllq_xmm_xmm_imm8 VEX_Vpsllq_ymm_ymm_imm8
        EVEX_Vpsllq_xmm_k1z_xmmm128b64_imm8 EVEX_Vpsllq_ymm_k1z_ymmm256b64_imm8
        EVEX_Vpsllq_zmm_k1z_zmmm512b64_imm8;
    PSRLW_I "wwi" tied Never:
        Psrlw_xmm_imm8 VEX_Vpsrlw_xmm_xmm_imm8 VEX_Vpsrlw_ymm_ymm_imm8
        EVEX_Vpsrlw_xmm_k1z_xmmm128_imm8 EVEX_Vpsrlw_ymm_k1z_ymmm256_imm8
        EVEX_Vpsrlw_zmm_k1z_zmmm512_imm8;
    PSRLD_I "wwi" tied Never:
        Psrld_xmm_imm8 VEX_Vpsrld_xmm_xmm_imm8 VEX_Vpsrld_ymm_ymm_imm8
        EVEX_Vpsrld_xmm_k1z_xmmm128b32_imm8 EVEX_Vpsrld_ymm_k1z_ymmm256b32_imm8
        EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8;
    PSRLQ_I "wwi" tied Never:
        Psrlq_xmm_imm8 VEX_Vpsrlq_xmm_xmm_imm8 VEX_Vpsrlq_ymm_ymm_imm8
        EVEX_Vpsrlq_xmm_k1z_xmmm128b64_imm8 EVEX_Vpsrlq_ymm_k1z_ymmm256b64_imm8
        EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8;
    PSRAW_I "wwi" tied Never:
        Psraw_xmm_imm8 VEX_Vpsraw_xmm_xmm_imm8 VEX_Vpsraw_ymm_ymm_imm8
        EVEX_Vpsraw_xmm_k1z_xmmm128_imm8 EVEX_Vpsraw_ymm_k1z_ymmm256_imm8
        EVEX_Vpsraw_zmm_k1z_zmmm512_imm8;
    PSRAD_I "wwi" tied Never:
        Psrad_xmm_imm8 VEX_Vpsrad_xmm_xmm_imm8 VEX_Vpsrad_ymm_ymm_imm8
        EVEX_Vpsrad_xmm_k1z_xmmm128b32_imm8 EVEX_Vpsrad_ymm_k1z_ymmm256b32_imm8
        EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8;
    PSRAQ_I "wwi" free Never:
        INVALID INVALID INVALID EVEX_Vpsraq_xmm_k1z_xmmm128b64_imm8
        EVEX_Vpsraq_ymm_k1z_ymmm256b64_imm8 EVEX_Vpsraq_zmm_k1z_zmmm512b64_imm8;
    PSLLVD "www" free Last:
        INVALID VEX_Vpsllvd_xmm_xmm_xmmm128 VEX_Vpsllvd_ymm_ymm_ymmm256
        EVEX_Vpsllvd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpsllvd_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpsllvd_zmm_k1z_zmm_zmmm512b32;
    PSLLVQ "www" free Last:
        INVALID VEX_Vpsllvq_xmm_xmm_xmmm128 VEX_Vpsllvq_ymm_ymm_ymmm256
        EVEX_Vpsllvq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpsllvq_ymm_k1z_ymm_ymmm256b64
        EVEX_Vpsllvq_zmm_k1z_zmm_zmmm512b64;
    PSRLVD "www" free Last:
        INVALID VEX_Vpsrlvd_xmm_xmm_xmmm128 VEX_Vpsrlvd_ymm_ymm_ymmm256
        EVEX_Vpsrlvd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpsrlvd_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpsrlvd_zmm_k1z_zmm_zmmm512b32;
    PSRLVQ "www" free Last:
        INVALID VEX_Vpsrlvq_xmm_xmm_xmmm128 VEX_Vpsrlvq_ymm_ymm_ymmm256
        EVEX_Vpsrlvq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpsrlvq_ymm_k1z_ymm_ymmm256b64
        EVEX_Vpsrlvq_zmm_k1z_zmm_zmmm512b64;
    PSRAVD "www" free Last:
        INVALID VEX_Vpsravd_xmm_xmm_xmmm128 VEX_Vpsravd_ymm_ymm_ymmm256
        EVEX_Vpsravd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpsravd_ymm_k1z_ymm_ymmm256b32
        EVEX_Vpsravd_zmm_k1z_zmm_zmmm512b32;
    PSRAVQ "www" free Last:
        INVALID INVALID INVALID EVEX_Vpsravq_xmm_k1z_xmm_xmmm128b64
        EVEX_Vpsravq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpsravq_zmm_k1z_zmm_zmmm512b64;
    PSLLVW "www" free Last:
        INVALID INVALID INVALID EVEX_Vpsllvw_xmm_k1z_xmm_xmmm128
        EVEX_Vpsllvw_ymm_k1z_ymm_ymmm256 EVEX_Vpsllvw_zmm_k1z_zmm_zmmm512;
    PSRLVW "www" free Last:
        INVALID INVALID INVALID EVEX_Vpsrlvw_xmm_k1z_xmm_xmmm128
        EVEX_Vpsrlvw_ymm_k1z_ymm_ymmm256 EVEX_Vpsrlvw_zmm_k1z_zmm_zmmm512;
    PSRAVW "www" free Last:
        INVALID INVALID INVALID EVEX_Vpsravw_xmm_k1z_xmm_xmmm128
        EVEX_Vpsravw_ymm_k1z_ymm_ymmm256 EVEX_Vpsravw_zmm_k1z_zmm_zmmm512;
    PMOVSXBW "wh" free Last:
        Pmovsxbw_xmm_xmmm64 VEX_Vpmovsxbw_xmm_xmmm64 VEX_Vpmovsxbw_ymm_xmmm128
        EVEX_Vpmovsxbw_xmm_k1z_xmmm64 EVEX_Vpmovsxbw_ymm_k1z_xmmm128
        EVEX_Vpmovsxbw_zmm_k1z_ymmm256;
    PMOVSXBD "wq" free Last:
        Pmovsxbd_xmm_xmmm32 VEX_Vpmovsxbd_xmm_xmmm32 VEX_Vpmovsxbd_ymm_xmmm64
        EVEX_Vpmovsxbd_xmm_k1z_xmmm32 EVEX_Vpmovsxbd_ymm_k1z_xmmm64
        EVEX_Vpmovsxbd_zmm_k1z_xmmm128;
    PMOVSXBQ "we" free Last:
        Pmovsxbq_xmm_xmmm16 VEX_Vpmovsxbq_xmm_xmmm16 VEX_Vpmovsxbq_ymm_xmmm32
        EVEX_Vpmovsxbq_xmm_k1z_xmmm16 EVEX_Vpmovsxbq_ymm_k1z_xmmm32
        EVEX_Vpmovsxbq_zmm_k1z_xmmm64;
    PMOVSXWD "wh" free Last:
        Pmovsxwd_xmm_xmmm64 VEX_Vpmovsxwd_xmm_xmmm64 VEX_Vpmovsxwd_ymm_xmmm128
        EVEX_Vpmovsxwd_xmm_k1z_xmmm64 EVEX_Vpmovsxwd_ymm_k1z_xmmm128
        EVEX_Vpmovsxwd_zmm_k1z_ymmm256;
    PMOVSXWQ "wq" free Last:
        Pmovsxwq_xmm_xmmm32 VEX_Vpmovsxwq_xmm_xmmm32 VEX_Vpmovsxwq_ymm_xmmm64
        EVEX_Vpmovsxwq_xmm_k1z_xmmm32 EVEX_Vpmovsxwq_ymm_k1z_xmmm64
        EVEX_Vpmovsxwq_zmm_k1z_xmmm128;
    PMOVSXDQ "wh" free Last:
        Pmovsxdq_xmm_xmmm64 VEX_Vpmovsxdq_xmm_xmmm64 VEX_Vpmovsxdq_ymm_xmmm128
        EVEX_Vpmovsxdq_xmm_k1z_xmmm64 EVEX_Vpmovsxdq_ymm_k1z_xmmm128
        EVEX_Vpmovsxdq_zmm_k1z_ymmm256;
    PMOVZXBW "wh" free Last:
        Pmovzxbw_xmm_xmmm64 VEX_Vpmovzxbw_xmm_xmmm64 VEX_Vpmovzxbw_ymm_xmmm128
        EVEX_Vpmovzxbw_xmm_k1z_xmmm64 EVEX_Vpmovzxbw_ymm_k1z_xmmm128
        EVEX_Vpmovzxbw_zmm_k1z_ymmm256;
    PMOVZXBD "wq" free Last:
        Pmovzxbd_xmm_xmmm32 VEX_Vpmovzxbd_xmm_xmmm32 VEX_Vpmovzxbd_ymm_xmmm64
        EVEX_Vpmovzxbd_xmm_k1z_xmmm32 EVEX_Vpmovzxbd_ymm_k1z_xmmm64
        EVEX_Vpmovzxbd_zmm_k1z_xmmm128;
    PMOVZXBQ "we" free Last:
        Pmovzxbq_xmm_xmmm16 VEX_Vpmovzxbq_xmm_xmmm16 VEX_Vpmovzxbq_ymm_xmmm32
        EVEX_Vpmovzxbq_xmm_k1z_xmmm16 EVEX_Vpmovzxbq_ymm_k1z_xmmm32
        EVEX_Vpmovzxbq_zmm_k1z_xmmm64;
    PMOVZXWD "wh" free Last:
        Pmovzxwd_xmm_xmmm64 VEX_Vpmovzxwd_xmm_xmmm64 VEX_Vpmovzxwd_ymm_xmmm128
        EVEX_Vpmovzxwd_xmm_k1z_xmmm64 EVEX_Vpmovzxwd_ymm_k1z_xmmm128
        EVEX_Vpmovzxwd_zmm_k1z_ymmm256;
    PMOVZXWQ "wq" free Last:
        Pmovzxwq_xmm_xmmm32 VEX_Vpmovzxwq_xmm_xmmm32 VEX_Vpmovzxwq_ymm_xmmm64
        EVEX_Vpmovzxwq_xmm_k1z_xmmm32 EVEX_Vpmovzxwq_ymm_k1z_xmmm64
        EVEX_Vpmovzxwq_zmm_k1z_xmmm128;
    PMOVZXDQ "wh" free Last:
        Pmovzxdq_xmm_xmmm64 VEX_Vpmovzxdq_xmm_xmmm64 VEX_Vpmovzxdq_ymm_xmmm128
        EVEX_Vpmovzxdq_xmm_k1z_xmmm64 EVEX_Vpmovzxdq_ymm_k1z_xmmm128
        EVEX_Vpmovzxdq_zmm_k1z_ymmm256;
    PMOVWB "hw" free First:
        INVALID INVALID INVALID EVEX_Vpmovwb_xmmm64_k1z_xmm EVEX_Vpmovwb_xmmm128_k1z_ymm
        EVEX_Vpmovwb_ymmm256_k1z_zmm;
    PMOVDB "qw" free First:
        INVALID INVALID INVALID EVEX_Vpmovdb_xmmm32_k1z_xmm EVEX_Vpmovdb_xmmm64_k1z_ymm
        EVEX_Vpmovdb_xmmm128_k1z_zmm;
    PMOVQB "ew" free First:
        INVALID INVALID INVALID EVEX_Vpmovqb_xmmm16_k1z_xmm EVEX_Vpmovqb_xmmm32_k1z_ymm
        EVEX_Vpmovqb_xmmm64_k1z_zmm;
    PMOVDW "hw" free First:
        INVALID INVALID INVALID EVEX_Vpmovdw_xmmm64_k1z_xmm EVEX_Vpmovdw_xmmm128_k1z_ymm
        EVEX_Vpmovdw_ymmm256_k1z_zmm;
    PMOVQW "qw" free First:
        INVALID INVALID INVALID EVEX_Vpmovqw_xmmm32_k1z_xmm EVEX_Vpmovqw_xmmm64_k1z_ymm
        EVEX_Vpmovqw_xmmm128_k1z_zmm;
    PMOVQD "hw" free First:
        INVALID INVALID INVALID EVEX_Vpmovqd_xmmm64_k1z_xmm EVEX_Vpmovqd_xmmm128_k1z_ymm
        EVEX_Vpmovqd_ymmm256_k1z_zmm;
}
